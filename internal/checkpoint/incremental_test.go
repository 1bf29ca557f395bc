package checkpoint

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/spotworker/spotworker/internal/checkpoint/blocks"
	"github.com/spotworker/spotworker/internal/checkpoint/chunks"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// part is a range of a state that passes for unchanged as long as its number is the same.
type part struct {
	number int
	data   []byte
}

// parted is a state of parts that each begin at a unit, as an archive has the files of a
// folder. It counts the bytes of all its streams that are read and skipped.
type parted struct {
	unit  int
	parts []part

	read, skipped int64
	wrong         []int64
}

// partedStream is a stream of a state of parts.
type partedStream struct {
	*bytes.Reader
	of *parted
	at map[int][2]int64 // offset and length of each part, by its number
}

func (p *parted) state() (state []byte, at map[int][2]int64) {
	at = map[int][2]int64{}
	for _, part := range p.parts {
		at[part.number] = [2]int64{int64(len(state)), int64(len(part.data))}
		state = append(state, part.data...)
		state = append(state, make([]byte, (p.unit-len(state)%p.unit)%p.unit)...)
	}
	return state, at
}

func (p *parted) snapshot() Snapshot {
	return Snapshot{Stream: func() (io.ReadCloser, error) {
		state, at := p.state()
		return &partedStream{bytes.NewReader(state), p, at}, nil
	}}
}

// save makes a write with the state, which must be in the record then.
func (p *parted) save(t *testing.T, b *rig, write func(Snapshot) error) {
	t.Helper()
	p.read, p.skipped, p.wrong = 0, 0, nil
	must(t, write(p.snapshot()))
	p.expectRecorded(t, b)
}

// expectRecorded demands that the state is in the record, and that a worker which restores it
// does not find it damaged.
func (p *parted) expectRecorded(t *testing.T, b *rig) {
	t.Helper()
	want, _ := p.state()
	r := b.read(t)
	if got := b.stateIn(t, r); !bytes.Equal(got, want) {
		t.Fatalf("the record has %d bytes that are not the %d bytes of the state", len(got), len(want))
	}
	if hash := blocks.HashOf(want, p.unit, r.StateKey); r.StateHash != hash {
		t.Fatalf("the record has the hash %s, want %s", r.StateHash, hash)
	}
}

func (s *partedStream) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.of.read += int64(n)
	return n, err
}

func (s *partedStream) Close() error { return nil }

func (s *partedStream) Origin() any { return s.at }

func (s *partedStream) Unchanged(origin any, yield func(at, was, length int64)) {
	for _, part := range s.of.parts {
		now := s.at[part.number]
		if was, ok := origin.(map[int][2]int64)[part.number]; ok && was[1] == now[1] {
			yield(now[0], was[0], now[1])
		}
	}
}

func (s *partedStream) Skip(n int64) error {
	s.of.skipped += n
	_, err := s.Seek(n, io.SeekCurrent)
	return err
}

func (s *partedStream) Wrong(at int64) { s.of.wrong = append(s.of.wrong, at) }

// newParted gives the store units and chunks of about that many bytes, and returns a state of
// parts of so many units and a half.
func (b *rig) newParted(unit, parts, units int) *parted {
	b.store.unit, b.store.cutter = unit, func() *chunks.Cutter { return chunks.Scaled(unit) }
	p := &parted{unit: unit}
	for number := range parts {
		p.parts = append(p.parts, part{number, p.random(units, uint64(number))})
	}
	return p
}

func (p *parted) random(units int, seed uint64) []byte {
	data := make([]byte, units*p.unit+p.unit/2)
	fillRandom(data, seed)
	return data
}

func (p *parted) size() int64 {
	state, _ := p.state()
	return int64(len(state))
}

// A release reads the parts that have changed, and some chunks at the ends of all parts.
func TestReleaseReadsChangedParts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		p := b.newParted(1024, 16, 64)
		c := b.store.Fresh(ours, "worker-1")
		save := func(s Snapshot) error { return c.Save(t.Context(), s) }
		for range 2 {
			if p.save(t, b, save); p.read != p.size() || p.skipped > 0 {
				t.Fatalf("a save read %d bytes of %d and skipped %d, want it to read all", p.read, p.size(), p.skipped)
			}
		}
		p.parts[5] = part{100, p.random(64, 100)}
		b.ResetCounts()
		p.save(t, b, func(s Snapshot) error { return c.Release(t.Context(), s) })
		if changed := int64(len(p.parts[5].data)); p.read > changed+16*2560 || p.read+p.skipped != p.size() {
			t.Errorf("the release read %d bytes and skipped %d of %d, want little more than the %d that changed",
				p.read, p.skipped, p.size(), changed)
		}
		if got := b.Counts()["PutBlock"]; got > 100 {
			t.Errorf("the release sent %d blocks, want those of one part in 16", got)
		}
	})
}

// A part that has changed is noticed by the next save although it passes for unchanged, and
// read by a release that follows.
func TestWrongIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		p := b.newParted(1024, 8, 16)
		c := b.store.Fresh(ours, "worker-1")
		save := func(s Snapshot) error { return c.Save(t.Context(), s) }
		p.save(t, b, save)
		p.save(t, b, save)
		p.parts[3].data = p.random(16, 200)
		if p.save(t, b, save); len(p.wrong) != 16 {
			t.Errorf("%d units are wrong, want the 16 that changed", len(p.wrong))
		}
		p.save(t, b, func(s Snapshot) error { return c.Release(t.Context(), s) })
		if least := int64(16 * 1024); p.read < least || p.skipped == 0 {
			t.Errorf("the release read %d bytes and skipped %d, want it to read the part that was not confirmed", p.read, p.skipped)
		}
	})
}

// A release that reads a unit and finds it changed reads everything again: the units that it
// skipped may have changed too.
func TestWrongDuringARelease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		p := b.newParted(1024, 8, 16)
		c := b.store.Fresh(ours, "worker-1")
		save := func(s Snapshot) error { return c.Save(t.Context(), s) }
		p.save(t, b, save)
		p.parts[3] = part{100, p.random(16, 100)} // is not confirmed by the next save
		p.save(t, b, save)
		p.parts[3].data = p.random(16, 200)
		p.parts[6].data = p.random(16, 201) // confirmed, and wrong now
		p.save(t, b, func(s Snapshot) error { return c.Release(t.Context(), s) })
		if len(p.wrong) == 0 || p.read < p.size() {
			t.Errorf("the release read %d bytes of %d and found %d wrong units, want it to read all", p.read, p.size(), len(p.wrong))
		}
	})
}

// Whatever happens to the parts between saves, the record has the state of the last one. Two of
// three histories send changed pages alone.
func TestSkippingKeepsTheState(t *testing.T) {
	for seed := range uint64(proof.Times(15, 300)) {
		inBubble(t, func(t *testing.T, b *rig) {
			random := rand.New(rand.NewPCG(seed, 1))
			p := b.newParted(512<<random.IntN(2), 2+random.IntN(6), 1+random.IntN(12))
			c := b.store.Fresh(ours, "worker-1")
			if seed%3 > 0 {
				b.store.page = p.unit / 64
			}
			next := 1000
			for range 2 + random.IntN(4) {
				p.save(t, b, func(s Snapshot) error { return c.Save(t.Context(), s) })
				for range random.IntN(3) {
					next++
					at := random.IntN(len(p.parts))
					added := part{next, p.random(random.IntN(12), uint64(next))}
					switch random.IntN(6) {
					case 0:
						p.parts[at] = added
					case 1:
						p.parts = slices.Insert(p.parts, at, added)
					case 2:
						if len(p.parts) > 1 {
							p.parts = slices.Delete(p.parts, at, at+1)
						}
					case 3:
						random.Shuffle(len(p.parts), func(i, j int) { p.parts[i], p.parts[j] = p.parts[j], p.parts[i] })
					case 4: // nothing changes
					case 5:
						added.data = slices.Clone(p.parts[at].data)
						added.data[random.IntN(len(added.data))]++
						p.parts[at] = added
					}
				}
			}
			p.save(t, b, func(s Snapshot) error { return c.Release(t.Context(), s) })
		})
	}
}

// Ranges that make no sense, and a panic, are errors of the handler.
func TestImpossibleRanges(t *testing.T) {
	for name, unchanged := range map[string]func(yield func(at, was, length int64)){
		"in descending order": func(yield func(at, was, length int64)) { yield(4096, 4096, 1024); yield(0, 0, 1024) },
		"before the start":    func(yield func(at, was, length int64)) { yield(0, -1024, 1024) },
		"just before it":      func(yield func(at, was, length int64)) { yield(0, -1, 1024) },
		"empty":               func(yield func(at, was, length int64)) { yield(0, 0, 0) },
		"a panic":             func(func(at, was, length int64)) { panic("no list") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				p := b.newParted(1024, 4, 4)
				c := b.store.Fresh(ours, "worker-1")
				p.save(t, b, func(s Snapshot) error { return c.Save(t.Context(), s) })
				before := b.body(t)
				p.parts[1] = part{100, p.random(4, 100)}
				err := c.Save(t.Context(), Snapshot{Stream: func() (io.ReadCloser, error) {
					state, at := p.state()
					return &misleading{partedStream{bytes.NewReader(state), p, at}, unchanged}, nil
				}})
				if !errors.Is(err, ErrUnreadable) || b.body(t) != before {
					t.Errorf("Save = %v, want ErrUnreadable and the state before", err)
				}
			})
		})
	}
}

type misleading struct {
	partedStream
	unchanged func(yield func(at, was, length int64))
}

func (m *misleading) Unchanged(_ any, yield func(at, was, length int64)) { m.unchanged(yield) }
