// Package spill holds and sorts lists that may be larger than memory: what exceeds a bound
// is in temporary files.
//
// A [Buffer] is written and then read. A [Sorter] takes records in any order and returns
// them in the order of their keys: it sorts as many as it holds, writes them to its buffer
// as a run, and merges the runs at the end.
package spill
