"""Facts about which forward values backward passes keep, and which they compute again."""
