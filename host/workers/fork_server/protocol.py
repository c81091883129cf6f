"""Constants that the client of the fork server and the server share."""

import struct

FIRST_FD = 3  # the first file descriptor that a request hands to its worker
OWN_FDS = 3  # descriptors of the request itself: its life, its stderr, and its content
MAX_FDS = 16
PID = struct.Struct("<i")
STATUS = struct.Struct("<i")
