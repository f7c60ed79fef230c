"""Engines that sample completions, one file each; the file's name is the decoder's."""
