Feature: It looks at what it did

  Scenario: Each change is followed by a look
    When tool file.edit succeeds
    Then tool file.read is called

  Scenario: No change before a look
    When tool file.edit is called
    Then tool file.read was called before
