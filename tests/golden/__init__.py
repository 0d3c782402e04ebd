"""What the product said and stored when it was recorded, compared with what it says and stores now."""
