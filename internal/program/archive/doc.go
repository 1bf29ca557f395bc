// Package archive writes a folder as one stream of bytes, and restores it. It turns a
// checkpoint that is a folder into a job's state.
//
// States are stored in chunks, and a chunk that is stored already is not sent again
// (package checkpoint). The format therefore keeps chunks stable: the same folder gives
// the same bytes, and a change of one file leaves nearly all chunks unchanged, although
// they may move. The layout is made for chunks of 1 MiB, as older versions cut them, with
// which a folder is shared during an update; chunks that are cut by content do without.
//
//	header │ index │ rests and small files, in bins ┊ whole chunks of files
//	└─────────────── a MiB ──────────────┘└── a MiB ──┘└── a MiB ──┘└ …
//
// Each whole MiB of a file is a chunk of its own. The rest of each file, and files of
// less than a MiB, are packed into bins: ranges that do not cross a chunk's border. The
// first bin is the rest of the index's chunk, so that a small folder is a small stream.
// When a file in a bin grows, everything behind it moves. A bin that is three quarters
// full therefore ends early after a file whose name hashes to that (one in four), so that
// the bins of two versions of a folder are the same again soon after a change.
//
// # Format
//
// The header is one line: "spotworker-archive 1 " and the index's length. The
// index has a line for each folder and file, in ascending order of paths:
//
//	f 000000200010 000000100000 0000000000c4 "weights/layer-0.bin"
//
// These are its type (d for a folder, f for a file, x for an executable file, l for a
// symbolic link), its size, the offset of its whole MiBs in the stream, the offset of the
// rest (0 for none), and its path with slashes, quoted as Go quotes strings. Numbers are
// 12 hexadecimal digits. Between the parts are zeros, less than a MiB each. A reader
// relies on the numbers alone, so a later version may pack differently.
//
// A link has zeros for size and offsets, and its target behind its path, quoted likewise.
// An archive with links has version 2 and is otherwise the same: versions of this package
// without links can read an archive that has none.
//
// Version 3 has hard links and files with holes:
//
//	h 000000000000 000000000000 000000000000 "b" "a/first"
//	s 000000001000 000000000000 000000000115 "holes" 000040000000 000000000000+000000001000
//
// h is another name of a file that stands before it. s is a file with holes, z an executable
// one. Size and offsets are of its data, one range behind the other. Behind the path are the
// size of the file, and offset and length of each range, at most 1,000.
//
// Version 4 is version 3 with more than 200,000 entries (at most 1,000,000) or an index of more
// than 64 MiB (at most 256 MiB). In every version the rests lie in the order of the index, then
// the whole MiBs, so that a reader can stream them.
//
// Links must not lead out of the folder; others are rejected, as are devices. Times,
// owners and modes except "executable" are not stored.
//
// The list of files is sorted in runs on the disk, next to the checkpoint, so that memory does not
// grow with their number. Tar does not fit: everything behind a change would move, and aligning each
// file would cost half a MiB on average.
package archive
