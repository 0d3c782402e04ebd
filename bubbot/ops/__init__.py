"""Programs around the bot: doctor, onboarding, service."""
