package blocks

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestGaps holds the ranges that are skipped to whole blocks whose units are all the same as
// confirmed units of the base. The base has ten blocks of 1000 bytes, and units of 1024.
func TestGaps(t *testing.T) {
	const unit = 1024
	base := Base{Manifest: Manifest{Size: 10_000}}
	for i := range 10 {
		block := make([]byte, 1000)
		block[0] = byte(i)
		base.Blocks = append(base.Blocks, NewNamer("").Chunk(block))
		base.Units = append(base.Units, UnitHash{Confirmed: i != 7})
	}
	type found struct{ At, Length int64 }
	for name, test := range map[string]struct {
		spans   []Span
		from    int64
		missing int // a block that the blob lacks, from 1 on
		want    []found
	}{
		"all but a unit":              {[]Span{{0, 0, 10_000}}, 0, 0, []found{{0, 7000}}},
		"behind what was read":        {[]Span{{0, 0, 10_000}}, 1024, 0, []found{{2000, 5000}}},
		"moved by units":              {[]Span{{2048, 0, 6000}}, 0, 0, []found{{2048, 5000}}},
		"moved back by units":         {[]Span{{1024, 3072, 3072}}, 0, 0, []found{{1952, 2000}}},
		"moved by less than a unit":   {[]Span{{1000, 0, 6000}}, 0, 0, nil},
		"begins within a unit":        {[]Span{{1000, 1000, 3000}}, 0, 0, []found{{2000, 1000}}},
		"less than a unit":            {[]Span{{1024, 1024, 1023}}, 0, 0, nil},
		"less than a block":           {[]Span{{1024, 1024, 1024}}, 0, 0, nil},
		"two":                         {[]Span{{0, 2048, 2048}, {4096, 4096, 2048}}, 0, 0, []found{{952, 1000}, {5000, 1000}}},
		"with a block that is gone":   {[]Span{{0, 0, 6000}}, 0, 3, nil},
		"with a block gone elsewhere": {[]Span{{0, 0, 3072}}, 0, 9, []found{{0, 3000}}},
		"beyond the base":             {[]Span{{0, 0, 1 << 20}}, 8192, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			base := base
			base.Spans, base.Skip = test.spans, func(int64) error { return nil }
			has := func(id string) bool { return test.missing == 0 || id != base.Blocks[test.missing-1] }
			var got []found
			for _, g := range base.gaps(unit, test.from, has, nil) {
				got = append(got, found{g.at, g.length})
				if n := lengthOf(g.blocks); n != g.length {
					t.Errorf("the blocks of the gap at %d have %d bytes, want %d", g.at, n, g.length)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("gaps (-want +got):\n%s", diff)
			}
			base.Skip = nil
			if gaps := base.gaps(unit, test.from, has, nil); gaps != nil {
				t.Errorf("a stream that is read in full has %d gaps", len(gaps))
			}
		})
	}
}
