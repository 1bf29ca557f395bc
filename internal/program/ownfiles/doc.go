// Package ownfiles makes checkpoints of the files that a program writes for itself: a
// simulation that saves its state every minute, under names of its own, in its working
// folder. The setting checkpoint_files of a kind names them with patterns.
//
//	look ─▶ changed? ─▶ still for a second? ─▶ copy all ─▶ unchanged meanwhile? ─▶ checkpoint
//
// The files of the first pattern make a checkpoint. They are complete when all files have changed
// that change together, as [rounds] has learned, and have not changed for [still] and in
// [stillLooks] looks. Files that took the place of others by a new name are complete at once. The files of all other patterns are copied
// with them as they are, such as a log that grows all the time: a copy is never older than
// the files of the first pattern, and a file that grows is copied up to the size that it had.
//
// After the end of the program nothing writes to the files, and links take the place of
// copies. They are complete if the program ended on its own. A program that a signal ended may
// have been writing: then the files of the first pattern count only if they were still before.
//
// A file that was copied for the checkpoint before and is unchanged is linked to that copy.
package ownfiles
