Feature: Nothing is deleted

  Scenario: A line of the file stays a line
    When tool file.edit is called
    Then its new does not equal ""

  Scenario: The file is not written anew
    When tool file.write is called
    Then it is refused

  Scenario Outline: What the bot remembers stays
    Then tool <tool> is not called

    Examples:
      | tool          |
      | memory.forget |
      | file.undo     |
