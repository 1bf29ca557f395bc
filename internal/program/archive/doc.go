// Package archive writes a folder as a tar archive, and restores it. It turns a checkpoint
// that is a folder into a job's state.
//
// The archive is in the PAX format of package archive/tar, so that tar unpacks a state. The
// entries are in the order of a walk: the names of each folder in ascending order of their
// bytes, and a folder's content behind it. The same folder gives the same bytes.
//
// # What is kept
//
// Paths, with bytes as they are, and contents; times of files in nanoseconds; whether a file is
// executable; hard links and symbolic links. Times of folders and of links are zero, owners are
// 0, and modes are 0600, or 0700 for folders and executable files. Links must not lead out of
// the folder; others are rejected, as are devices, pipes and sockets.
//
// A file with holes has its data alone, with the map of sparse files of GNU tar (PAX, version
// 0.1) in the header: the number of ranges, offset and length of each, and the size of the file.
// Version 1.0 has the map in front of the data, where package tar does not show it.
//
// # Small changes stay small
//
// States are cut into chunks by their content, and a chunk that is stored already is not sent
// again (package checkpoint). A file that has not changed has the same header and the same
// content, wherever it is in the stream. Folders have no time, since each checkpoint is a new
// folder. The data of a file of 64 KiB or more begins at a multiple of 4 KiB in the stream, by
// a comment in its header: so a page of the file is a page of the stream.
//
// # Memory
//
// [Scan] keeps a hash of all entries and no list of them: the stream goes through the folder
// again, and compares the hashes at its end. In memory are the names of the folders on the way
// and the paths of files with several names.
//
// # Not trusted
//
// [Extract] accepts what this package writes: entries in order, each in a folder before it, with
// no other types, formats or records of holes.
package archive
