package images

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// TestAgain: an interrupted thread makes its call again for the rest of its time, and for the
// whole where the wait may be another one of the same kind.
func TestAgain(t *testing.T) {
	const address, place, code = 0x7000, 0x7100, 0x401000
	call := func(number uint64, arguments ...uint64) Registers {
		r := Registers{AX: 1<<64 - 4, OrigAX: number, IP: code, CS: userCode}
		for i, to := range []protowire.Number{DI, SI, DX, R10} {
			if r[to] = 0; i < len(arguments) {
				r[to] = arguments[i]
			}
		}
		return r
	}
	for name, row := range map[string]struct {
		before, after Registers
		stored        time.Duration // in memory before
		left          time.Duration // in memory after; 0 for unchanged
	}{
		"poll":              {before: call(callPoll, 1, 2, 5000), after: call(callPoll, 1, 2, 3000)},
		"poll for ever":     {before: call(callPoll, 1, 2, 1<<32-1), after: call(callPoll, 1, 2, 1<<32-1)},
		"poll in a loop":    {before: call(callPoll, 1, 2, 2500), after: call(callPoll, 1, 2, 2500)},
		"epoll":             {before: call(callEpollPwait, 1, 2, 3, 5000), after: call(callEpollPwait, 1, 2, 3, 3000)},
		"sleep with a rest": {before: call(callNanosleep, address, place), after: call(callNanosleep, place, place)},
		"sleep without":     {before: call(callNanosleep, address), after: call(callPoll, 0, 0, 3000), stored: 5 * time.Second},
		"clock":             {before: call(callClockNanosleep, 1, 0, address), after: call(callPoll, 0, 0, 3000), stored: 5 * time.Second},
		"absolute": {before: call(callClockNanosleep, 1, 1, address), after: call(callClockNanosleep, 1, 1, address),
			stored: 5 * time.Second},
		"futex": {before: call(callFutex, 9, 128, 7, address), after: call(callFutex, 9, 128, 7, address),
			stored: 5 * time.Second, left: 3 * time.Second},
		"futex, absolute":    {before: call(callFutex, 9, 137, 7, address), after: call(callFutex, 9, 137, 7, address), stored: 5 * time.Second},
		"futex without time": {before: call(callFutex, 9, 128, 7), after: call(callFutex, 9, 128, 7)},
		"signal": {before: call(callRtSigtimedwait, 9, 0, address), after: call(callRtSigtimedwait, 9, 0, address),
			stored: 5 * time.Second, left: 3 * time.Second},
	} {
		content := timespec(row.stored)
		m := Memory{
			Read: func(at uint64, to []byte) error {
				if copy(to, content); at != address {
					return errors.New("another address")
				}
				return nil
			},
			Write: func(_ uint64, from []byte) error { copy(content, from); return nil },
		}
		got, want := maps.Clone(row.before), row.after
		want[AX], want[IP] = want[OrigAX], code-2
		want[OrigAX] = got[OrigAX]
		if !got.IsInterrupted() {
			t.Errorf("%s: not interrupted", name)
		}
		got.Again(Waited{Least: 2 * time.Second, Most: 2500 * time.Millisecond}, m)
		if !maps.Equal(got, want) {
			t.Errorf("%s: registers %v, want %v", name, got, want)
		}
		if left := cmp.Or(row.left, row.stored); string(content) != string(timespec(left)) {
			t.Errorf("%s: the time in memory is %x, want %s", name, content, left)
		}
	}
	for _, number := range []uint64{callClose, callConnect, callRestart, 1<<64 - 1} {
		if call(number).IsInterrupted() {
			t.Errorf("call %d would be made again", number)
		}
	}
}

func timespec(d time.Duration) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(d/time.Second)), uint64(d%time.Second))
}

// TestWriteImage changes a page that is stored, and no other.
func TestWriteImage(t *testing.T) {
	dir, page := t.TempDir(), uint64(os.Getpagesize())
	pagemap := make([]byte, imageHead)
	add := func(values ...uint64) {
		var m []byte
		for i, value := range values {
			m = protowire.AppendVarint(protowire.AppendTag(m, protowire.Number(i+1), protowire.VarintType), value)
		}
		pagemap = append(binary.LittleEndian.AppendUint32(pagemap, uint32(len(m))), m...)
	}
	add(7)
	add(10*page, 2, 0, pagesPresent)
	add(12*page, 1, 0, 0)
	add(20*page, 1, 0, pagesPresent)
	pages := filepath.Join(dir, "pages-7.img")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "pagemap-1000.img"), pagemap, 0o600),
		os.WriteFile(pages, make([]byte, 3*page), 0o600)); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 3*page)
	copy(want[page+8:], "first")
	copy(want[2*page:], "second")
	err := errors.Join(WriteMemory(dir, 1000, 11*page+8, []byte("first")), WriteMemory(dir, 1000, 20*page, []byte("second")))
	if got, failed := os.ReadFile(pages); err != nil || failed != nil || string(got) != string(want) {
		t.Errorf("WriteMemory = %v, and the pages are not as wanted", err)
	}
	for _, address := range []uint64{0, 12 * page, 21*page - 2, 21 * page} {
		if err := WriteMemory(dir, 1000, address, []byte("none")); !errors.Is(err, ErrNoPage) {
			t.Errorf("WriteMemory at %#x = %v, want ErrNoPage", address, err)
		}
	}
}
