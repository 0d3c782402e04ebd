Feature: A digest is made of the pages that its config names

  Scenario: It reads pages, and those of this site only
    When tool web.fetch is called
    Then its url matches "^https?://news\.example\.org[:/]"

  Scenario: It reads each page once or twice, and does not roam
    Then tool web.fetch is called at most 10 times

  Scenario: A digest of nothing is no digest
    Then tool web.fetch succeeds
    And the artifact of read exists

  Scenario: Whoever sums up reads no more pages
    Given the node summary
    Then tool web.fetch is not called
