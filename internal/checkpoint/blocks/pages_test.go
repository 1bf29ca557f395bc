package blocks

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPageIndex: each sum is found at its first page, however many pages there are, and also if many
// of them are equal or share a bucket.
func TestPageIndex(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 2, 3, 4, 5, 7, 8, 1000, 5000} {
		sums := make(Pages, size)
		for i := range sums {
			switch sums[i][9] = byte(source.IntN(4)); source.IntN(4) {
			case 0: // few sums, all in the first bucket; one of them is the sum of unknown pages
			case 1:
				sums[i] = PageSum{255, 255, 255, 255, byte(source.IntN(3))} // the last bucket
			default:
				sums[i][source.IntN(4)] = byte(source.Uint32())
			}
		}
		index := newPageIndex(sums)
		absent := []PageSum{{255, 255, 255, 255, 7}, {8: 1}, {}}
		for _, sum := range slices.Concat(sums, absent) {
			want := int64(slices.Index(sums, sum))
			if sum == (PageSum{}) {
				want = none
			}
			if got := index.find(sum); got != want {
				t.Errorf("of %d pages %x is at %d, want %d", size, sum, got, want)
			}
		}
	}
}

// TestSkippedPages: a page has a sum if all of it was read.
func TestSkippedPages(t *testing.T) {
	const page = 16
	data := make([]byte, 40*page)
	for i := range data {
		data[i] = byte(i / 3)
	}
	all := Key("a key").AddPages(nil, data, page)
	for _, row := range []struct {
		read []int // lengths, in turn read and skipped
		sums []int // pages with a sum
	}{
		{[]int{page, page, page}, []int{0, 2}},
		{[]int{0, 3 * page, page}, []int{3}},
		{[]int{5, 3 * page, page - 5}, []int{}},
		{[]int{page, 10*page + 1, 2*page - 1}, []int{0, 12}},
		{[]int{2 * page, page - 1, 2 * page}, []int{0, 1, 3, 4}},
		{[]int{page + 2, 2 * page, 3*page - 2, 7 * page, page / 2}, []int{0, 4, 5, 13}},
	} {
		p, at := newPager(page, "a key", nil), 0
		for i, n := range row.read {
			if i%2 == 0 {
				p.write(data[at : at+n])
			} else {
				p.skip(int64(n))
			}
			at += n
		}
		p.close()
		if want := (at + page - 1) / page; len(p.sums) != want {
			t.Errorf("%v: %d sums, want %d", row.read, len(p.sums), want)
			continue
		}
		for i, sum := range p.sums {
			want := PageSum{}
			if slices.Contains(row.sums, i) {
				want = all[i]
				if at < (i+1)*page { // the last page is shorter
					want = Key("a key").AddPages(nil, data[i*page:at], page)[0]
				}
			}
			if sum != want {
				t.Errorf("%v: the sum of page %d is %x, want %x", row.read, i, sum, want)
			}
		}
	}
}
