// Package archive writes a folder as one stream of bytes, and makes a folder of
// it again. It is how a checkpoint that is a folder becomes a job's state.
//
// States are kept in chunks of 1 MiB, and a chunk that is there already is not
// sent again (package checkpoint). So the format is made for what stays the same:
// the same folder gives the same bytes, and a change of one file leaves nearly
// all chunks as they were, wherever they end up.
//
//	header │ index │ rests and small files, in bins ┊ whole chunks of files
//	└─────────────── a MiB ──────────────┘└── a MiB ──┘└── a MiB ──┘└ …
//
// A file's whole MiBs come as they are, each in a chunk of its own. What is left
// of each file, and files of less than a MiB, are packed into bins: stretches
// that do not cross a chunk's border. The first bin is what the index leaves of
// its chunk, so that a small folder is a small stream. When a file in a bin
// grows, what is behind it moves. A bin that is three quarters full therefore
// ends early after a file whose name says so (one in four): the bins of two
// versions of a folder fall into step again soon after a change.
//
// # Format
//
// The header is one line: "spotworker-archive 1 " and the index's length. The
// index has a line for each folder and file, in ascending order of paths:
//
//	f 000000200010 000000100000 0000000000c4 "weights/layer-0.bin"
//
// These are its type (d for a folder, f for a file, x for one that may be
// executed, l for a symbolic link), its size, where in the stream its whole MiBs begin, where the rest
// begins (0 for none), and its path with slashes, quoted as Go quotes strings.
// Numbers are 12 hexadecimal digits. Between the parts are zeros, less than a
// MiB each. A reader goes by the numbers alone, so a later version may pack
// otherwise.
//
// A link has no size and places, and behind its path its target, quoted likewise.
// An archive with links has the version 2, and is otherwise the same: what has
// none can be read by versions that know no links.
//
// Links stay in the folder; others are refused, as are devices. Times, owners and
// modes beyond "may be executed" are not kept.
package archive
