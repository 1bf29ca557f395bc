package queue

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// large is an envelope whose payload needs a blob.
func large(t *testing.T) Envelope {
	t.Helper()
	return Envelope{ID: "job-1", Kind: "k", Payload: jsonPayload(t, `"`+strings.Repeat("<x>", 100<<10)+`"`), EnqueuedAt: noon}
}

// offloaded stores the payload of a large envelope and sends it over a queue.
func offloaded(t *testing.T, b *rig) (e Envelope, payload []byte) {
	t.Helper()
	e = large(t)
	payload, _ = e.Payload.Inline()
	var tooLarge *TooLargeError
	if _, err := e.Encode(); !errors.As(err, &tooLarge) {
		t.Fatalf("Encode of a large envelope = %v, want a TooLargeError", err)
	}
	small, err := b.payloads.Offload(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, encode(t, small)), payload
}

func TestOffloadAndLoad(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		e, want := offloaded(t, b)
		if e.Payload.Hash() != large(t).Payload.Hash() {
			t.Error("a payload has another hash in a blob than inline")
		}
		name := jobid.Path("job-1") + "/" + e.Payload.Hash()
		if blobs := b.Blobs(payloadsName); len(blobs) != 1 || blobs[0].Name != name {
			t.Errorf("blobs = %+v, want %s alone", blobs, name)
		}
		if got, err := b.payloads.Load(t.Context(), e); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Load = %d bytes, %v, want the %d that were stored", len(got), err, len(want))
		}
		if _, err := b.payloads.Offload(t.Context(), large(t)); err != nil {
			t.Errorf("a second Offload = %v, want no error", err)
		}
		if _, err := b.payloads.Offload(t.Context(), e); err == nil {
			t.Error("Offload of a reference = <nil>, want an error")
		}
		for range 2 {
			if err := b.payloads.Discard(t.Context(), e); err != nil {
				t.Errorf("Discard = %v, want no error", err)
			}
		}
		if blobs := b.Blobs(payloadsName); len(blobs) != 0 {
			t.Errorf("blobs after Discard = %+v, want none", blobs)
		}
	})
}

// TestFind: the payload is found among the job's blobs, whatever pages their list has.
func TestFind(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		inputs := []byte(`[{"container":"c","blob":"b"}]`)
		var works []string
		for n := range 5 {
			e := Envelope{ID: "job-1", Kind: "k", Payload: jsonPayload(t, `"`+strings.Repeat("x", n+1)+`"`), Inputs: inputs, EnqueuedAt: noon}
			if _, err := b.payloads.Offload(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			works = append(works, e.Work())
		}
		for n, work := range works {
			found, ok, err := b.payloads.Find(t.Context(), "job-1", inputs, work, 0)
			if err != nil || !ok || found.Ref() == nil || found.Ref().Size != int64(n+3) {
				t.Errorf("Find payload %d = %+v, %t, %v, want one of %d bytes", n, found, ok, err, n+3)
			}
		}
		if found, ok, err := b.payloads.Find(t.Context(), "job-1", inputs, works[0]+"0", 0); ok || err != nil {
			t.Errorf("Find of another payload = %+v, %t, %v, want none", found, ok, err)
		}
	})
}

// TestPayloadOfALaterRun: the payload of a job that was put again is another blob, also if it is the same.
func TestPayloadOfALaterRun(t *testing.T) {
	for _, inputs := range []string{"", `[{"container":"data"}]`} {
		inBubble(t, func(t *testing.T, b *rig) {
			before := Envelope{ID: "job-1", Kind: "k", Payload: BytesPayload([]byte("frame"))}
			if inputs != "" {
				before.Inputs = []byte(inputs)
			}
			later := before
			later.Again = 7
			for _, e := range []*Envelope{&before, &later} {
				var err error
				if *e, err = b.payloads.Offload(t.Context(), *e); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.payloads.Discard(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			for again, want := range map[int]bool{0: false, 7: true} {
				if found, ok, err := b.payloads.Find(t.Context(), "job-1", before.Inputs, before.Work(), again); ok != want || err != nil {
					t.Errorf("Find of run %d = %+v, %t, %v, want %t", again, found, ok, err, want)
				}
			}
			start, size, err := b.payloads.Start(t.Context(), later, 3)
			if err != nil || string(start) != "fra" || size != 5 {
				t.Errorf("Start = %q of %d, %v", start, size, err)
			}
			if data, err := b.payloads.Load(t.Context(), later); err != nil || string(data) != "frame" {
				t.Errorf("Load = %q, %v, want it", data, err)
			}
		})
	}
}

// Permanent errors wrap ErrPayload, and temporary ones do not.
func TestLoadUnusable(t *testing.T) {
	for _, row := range []struct {
		name   string
		damage func(t *testing.T, b *rig, e *Envelope)
		final  bool
	}{
		{"missing", func(t *testing.T, b *rig, e *Envelope) {
			if err := b.payloads.Discard(t.Context(), *e); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"shorter", func(_ *testing.T, _ *rig, e *Envelope) { e.Payload.ref.Size++ }, true},
		{"longer", func(_ *testing.T, _ *rig, e *Envelope) { e.Payload.ref.Size-- }, true},
		{"huge", func(_ *testing.T, _ *rig, e *Envelope) { e.Payload.ref.Size = MaxPayload + 1 }, true},
		{"out of reach", func(_ *testing.T, b *rig, _ *Envelope) {
			b.faultOn(storage.OpGetBlob, allTries, storage.Fault{DropReply: true})
		}, false},
		{"container missing", func(_ *testing.T, b *rig, _ *Envelope) {
			b.faultOn(storage.OpGetBlob, allTries, storage.Fault{Refuse: &storage.Error{Status: 404, Code: "ContainerNotFound"}})
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				e, _ := offloaded(t, b)
				row.damage(t, b, &e)
				got, err := b.payloads.Load(t.Context(), e)
				if err == nil || errors.Is(err, ErrPayload) != row.final {
					t.Errorf("Load = %d bytes, %v, want an error that is final: %t", len(got), err, row.final)
				}
			})
		})
	}
}

// A blob whose content changed under its name is noticed by its hash.
func TestLoadDamaged(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		e, payload := offloaded(t, b)
		if err := b.payloads.Discard(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		payload = bytes.Clone(payload)
		payload[1000] ^= 1
		if err := b.payloads.blobs.Create(t.Context(), blobName(e.ID, e.Payload.Ref(), 0), payload, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := b.payloads.Load(t.Context(), e); !errors.Is(err, ErrPayload) {
			t.Errorf("Load of a damaged payload = %v, want ErrPayload", err)
		}
	})
}

// TestLoadIntoOneBuffer: the largest payload takes its own size in memory, and a
// blob of another size than the message states is not read at all.
func TestLoadIntoOneBuffer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		e, err := b.payloads.Offload(t.Context(), Envelope{ID: "large", Kind: "k", Payload: BytesPayload(make([]byte, MaxPayload))})
		if err != nil {
			t.Fatal(err)
		}
		if got := allocated(func() { _, err = b.payloads.Load(t.Context(), e) }); err != nil || got > MaxPayload+1<<20 {
			t.Errorf("Load of %d bytes = %v and allocates %d, want at most 1 MiB more than the payload", MaxPayload, err, got)
		}
		e.Payload.ref.Size--
		if got := allocated(func() { _, err = b.payloads.Load(t.Context(), e) }); !errors.Is(err, ErrPayload) || got > 1<<20 {
			t.Errorf("Load of a blob of another size = %v and allocates %d bytes, want ErrPayload and at most 1 MiB", err, got)
		}
	})
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestOffloadTooLarge(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		e := Envelope{ID: "a", Kind: "k", Payload: BytesPayload(make([]byte, MaxPayload+1))}
		if _, err := b.payloads.Offload(t.Context(), e); err == nil {
			t.Error("Offload of more than MaxPayload = <nil>, want an error")
		}
		if counts := b.Counts(); len(counts) != 0 {
			t.Errorf("calls = %v, want none", counts)
		}
	})
}

// A reply that is lost, or a body cut half-way, costs a retry and nothing else.
func TestPayloadsInTrouble(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		b.faultOn(storage.OpPutBlob, 1, storage.Fault{DropReply: true})
		e, want := offloaded(t, b)
		b.faultOn(storage.OpGetBlob, 2, storage.Fault{DropReply: true})
		if got, err := b.payloads.Load(t.Context(), e); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Load after lost replies = %d bytes, %v, want %d", len(got), err, len(want))
		}
		b.faultOn(storage.OpDeleteBlob, 1, storage.Fault{DropReply: true})
		if err := b.payloads.Discard(t.Context(), e); err != nil || len(b.Blobs(payloadsName)) != 0 {
			t.Errorf("Discard after a lost reply = %v, %d blobs left, want none", err, len(b.Blobs(payloadsName)))
		}
	})
}

// TestPayloadIsCutOff: a body that ends early is no proof against the payload, whose job would be
// poison.
func TestPayloadIsCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		e, _ := offloaded(t, b)
		b.faultOn(storage.OpGetBlob, allTries, storage.Fault{CutBody: true})
		if _, err := b.payloads.Load(t.Context(), e); err == nil || errors.Is(err, ErrPayload) {
			t.Errorf("Load = %v, want an error that a retry may cure", err)
		}
	})
}

// TestOffloadReplacesNothing: a blob that is there stays as it is. Its name is the hash of its
// content, so that another content is damage that somebody else must see.
func TestOffloadReplacesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		e := large(t)
		name := blobName(e.ID, &Ref{SHA256: e.Payload.Hash()}, e.Again)
		b.plant(t, name, "other")
		if _, err := b.payloads.Offload(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if _, kept, _ := b.ReadBlob(payloadsName, name); string(kept) != "other" {
			t.Errorf("the blob has %d bytes of another writer, want it unchanged", len(kept))
		}
	})
}

// TestFindByHash: the payload of a job is found by the hash in its record, with inputs and without.
func TestFindByHash(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		e, _ := offloaded(t, b)
		inputs := []byte("1")
		b.plant(t, blobName(e.ID, &Ref{SHA256: strings.Repeat("0", 64)}, e.Again), "another one of the job")
		for _, row := range []struct {
			name   string
			inputs []byte
			work   string
			found  bool
			size   int64 // of the payload in a blob
		}{
			{"empty", nil, Envelope{}.Work(), true, 0},
			{"empty with inputs", inputs, Envelope{Inputs: inputs}.Work(), true, 0},
			{"in a blob", nil, e.Work(), true, e.Payload.Ref().Size},
			{"in a blob, with inputs", inputs, Envelope{Payload: e.Payload, Inputs: inputs}.Work(), true, e.Payload.Ref().Size},
			{"gone", nil, strings.Repeat("1", 64), false, 0},
			{"gone, with inputs", inputs, strings.Repeat("1", 64), false, 0},
		} {
			got, ok, err := b.payloads.Find(t.Context(), e.ID, row.inputs, row.work, 0)
			if err != nil || ok != row.found {
				t.Errorf("%s: found %t, %v, want %t", row.name, ok, err, row.found)
				continue
			}
			ref := got.Ref()
			if inBlob := row.size > 0; inBlob != (ref != nil) || inBlob && (ref.Size != row.size || ref.SHA256 != e.Payload.Hash()) {
				t.Errorf("%s: %+v, want a blob of %d bytes", row.name, ref, row.size)
			}
			b.OnCall(func(storage.Call) storage.Fault {
				return storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationPermissionMismatch"}}
			})
			if _, _, err := b.payloads.Find(t.Context(), e.ID, row.inputs, row.work, 0); (err == nil) != (row.found && row.size == 0) {
				t.Errorf("%s, without access: %v", row.name, err)
			}
			b.OnCall(nil)
		}
		b.faultOn(storage.OpDeleteBlob, allTries, storage.Fault{DropRequest: true})
		if err := b.payloads.Discard(t.Context(), e); err == nil {
			t.Error("Discard without a network = <nil>, want an error")
		}
	})
}
