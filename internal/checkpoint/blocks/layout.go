package blocks

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Bounds of the layout of a state. A base above them is replaced by whole blocks. A save that
// ends a claim has little time, and may exceed them twice.
const (
	maxRanges  = 1 << 18 // of the layout
	maxPatches = 1 << 10 // blocks of pages
	maxExcess  = 2       // the body may be larger than the state by the state divided by this
	endFactor  = 2       // for the save that ends a claim

	// MaxLayout is the largest encoded layout, in bytes.
	MaxLayout = 16 << 20
)

// Sizes of the reading of a state with a layout, in bytes.
const (
	maxWaste = 128 << 10 // unneeded bytes between two ranges that are read by one call
	maxRun   = 256 << 10 // a buffer for ranges that one call reads
)

// Place is where a body has its layout, in bytes. The zero value says that the body is the state.
type Place struct{ At, Size int64 }

// Layout says which ranges of a body, one after another, are the state. The zero value says that
// the body is the state.
type Layout struct {
	ranges []bodyRange
	starts []int64 // of the ranges, in the state
}

type bodyRange struct{ at, length int64 }

func (l *Layout) size() (bytes int64) {
	if n := len(l.ranges); n > 0 {
		bytes = l.starts[n-1] + l.ranges[n-1].length
	}
	return bytes
}

// add adds a range to the end of the state.
func (l *Layout) add(r bodyRange) {
	if n := len(l.ranges); n > 0 && l.ranges[n-1].at+l.ranges[n-1].length == r.at {
		l.ranges[n-1].length += r.length
		return
	}
	l.starts = append(l.starts, l.size())
	l.ranges = append(l.ranges, r)
}

// encode returns the layout as the body has it: for each range its length, and the distance of
// its begin from the end of the range before.
func (l *Layout) encode() (data []byte) {
	end := int64(0)
	for _, r := range l.ranges {
		data = binary.AppendVarint(binary.AppendUvarint(data, uint64(r.length)), r.at-end)
		end = r.at + r.length
	}
	return data
}

var errLayout = errors.New("the layout of the state is damaged")

// ParseLayout reads the layout of a state of that size, in a body with so many bytes before the
// layout.
func ParseLayout(data []byte, body, size int64) (l Layout, err error) {
	end, total := int64(0), int64(0)
	for len(data) > 0 {
		length, n := binary.Uvarint(data)
		if n <= 0 || length == 0 || length > uint64(size-total) {
			return Layout{}, errLayout
		}
		data = data[n:]
		distance, n := binary.Varint(data)
		if n <= 0 || distance < -end || distance > body-end-int64(length) {
			return Layout{}, errLayout
		}
		data = data[n:]
		r := bodyRange{end + distance, int64(length)}
		l.starts, l.ranges = append(l.starts, total), append(l.ranges, r)
		end, total = r.at+r.length, total+r.length
	}
	if total != size {
		return Layout{}, errLayout
	}
	return l, nil
}

// target is a range of a body, and where a buffer gets its bytes.
type target struct {
	bodyRange
	to int64
}

// slice returns the ranges of a part of the state.
func (l *Layout) slice(from, length int64) (all []target) {
	i, exact := slices.BinarySearch(l.starts, from)
	if !exact {
		i--
	}
	for end := from + length; i < len(l.ranges) && l.starts[i] < end; i++ {
		low, high := max(from, l.starts[i]), min(end, l.starts[i]+l.ranges[i].length)
		all = append(all, target{bodyRange{l.ranges[i].at + low - l.starts[i], high - low}, low - from})
	}
	return all
}

// Read fills data with the bytes of the state from an offset on, by calls that each read a range
// of the body, at most so many at once. Neighbouring ranges are read by one call.
func (l *Layout) Read(data []byte, offset int64, calls int, read func(data []byte, at int64) error) error {
	if len(l.ranges) == 0 {
		return read(data, offset)
	}
	main, others := divide(l.slice(offset, int64(len(data))))
	for _, r := range runs(main, int64(len(data))) { // with the bytes between them, which others replace
		to := r.targets[0].to
		if err := read(data[to:to+r.length], r.at); err != nil {
			return err
		}
	}
	var reading errgroup.Group
	reading.SetLimit(calls)
	for _, r := range runs(others, maxRun) {
		reading.Go(func() error { return r.read(data, read) })
	}
	return reading.Wait()
}

// divide returns the targets that lie in the buffer as in the body, as far as they are the most
// bytes, and the others.
func divide(all []target) (main, others []target) {
	bytes, most := map[int64]int64{}, int64(0)
	for _, t := range all {
		shift := t.at - t.to
		if bytes[shift] += t.length; bytes[shift] > bytes[most] {
			most = shift
		}
	}
	for _, t := range all {
		if t.at-t.to == most {
			main = append(main, t)
		} else {
			others = append(others, t)
		}
	}
	return main, others
}

// run is a range of a body that one call reads for several targets.
type run struct {
	bodyRange
	targets []target
}

// read reads the run, and copies its targets to the buffer.
func (r *run) read(data []byte, read func(data []byte, at int64) error) error {
	if t := r.targets[0]; len(r.targets) == 1 {
		return read(data[t.to:t.to+t.length], t.at)
	}
	buffer := make([]byte, r.length)
	if err := read(buffer, r.at); err != nil {
		return err
	}
	for _, t := range r.targets {
		copy(data[t.to:t.to+t.length], buffer[t.at-r.at:])
	}
	return nil
}

// runs sorts targets by their place in the body. It begins a run where more than maxWaste is
// between two of them, or the run would have more than so many bytes.
func runs(all []target, most int64) (divided []run) {
	slices.SortFunc(all, func(a, b target) int { return cmp.Compare(a.at, b.at) })
	for i, t := range all {
		if n := len(divided); n > 0 {
			last := &divided[n-1]
			length := max(last.length, t.at+t.length-last.at)
			if t.at <= last.at+last.length+maxWaste && length <= most {
				last.length, last.targets = length, all[i-len(last.targets):i+1]
				continue
			}
		}
		divided = append(divided, run{t.bodyRange, all[i : i+1]})
	}
	return divided
}
