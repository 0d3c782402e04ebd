Feature: Nothing is published by mistake

  Scenario: A person said yes before
    When tool file.write is called
    Then gate confirm was confirmed before
    And field passed of the artifact of tests equals true

  Scenario: It writes the notes, once
    Given the node publish
    Then tool file.write is called exactly 1 time

  Scenario: Only the file of the notes is written
    When tool file.write is called
    Then its path equals "NOTES.md"
