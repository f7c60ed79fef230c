"""What has nothing to do with RL: files, plugins, parsing, random streams, text, the machine."""
