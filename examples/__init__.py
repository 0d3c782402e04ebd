"""Examples of bubbot, each on one page. A package, since a library that the tests use has one of this name, too."""
