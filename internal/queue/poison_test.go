package queue

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// goldenPoison are the files in testdata/poison and their meanings. Files are never
// edited, only added to.
func goldenPoison() map[string]Poison {
	return map[string]Poison{
		"full": {
			V: 1, ID: "a", Kind: "digest", Reason: "5 failures in a row without progress, the last: \"<no>\"\nsuch blob",
			PoisonedAt: noon, Worker: "vmss_000001-0123abcd-0", Origin: "spotworker-jobs",
			MessageID: "0195f6a0-1111-7000-8000-000000000001", Body: "eyJ2IjoxfQ==",
		},
		"blob": {
			V: 1, Reason: "not an envelope", PoisonedAt: noon, Worker: "w", Origin: "spotworker-jobs",
			MessageID: "0195f6a0-1111-7000-8000-000000000001", BodyBlob: "poison/0195f6a0-1111-7000-8000-000000000001",
		},
	}
}

func TestGoldenPoison(t *testing.T) {
	want := goldenPoison()
	for _, name := range goldenNames(t, "poison") {
		p, ok := want[name]
		if !ok {
			t.Errorf("no meaning is given for poison/%s.json", name)
			continue
		}
		text := readGolden(t, "poison", name)
		got, err := DecodePoison(inBase64(text))
		if diff := cmp.Diff(p, got); err != nil || diff != "" {
			t.Errorf("%s decoded: %v (-want +got)\n%s", name, err, diff)
		}
		if encoded, err := p.encode(); err != nil || plain(t, encoded) != text {
			t.Errorf("%s encoded = %s, %v, want %s", name, plain(t, encoded), err, text)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("golden file poison/%s.json is missing", name)
	}
}

// poisonOf is the poison message of a message with that body.
func poisonOf(body string) Poison {
	return Poison{
		ID: "a", Kind: "k", Reason: "because", PoisonedAt: noon, Worker: "w",
		Origin: jobsName, MessageID: "m-1", Body: body,
	}
}

func TestPutPoison(t *testing.T) {
	for name, row := range map[string]struct {
		body   string
		inBlob bool
	}{
		"small":           {"hello <&>\n", false},
		"empty":           {"", false},
		"largest message": {strings.Repeat("x", MaxText), true},
		"grows as JSON":   {strings.Repeat("\"", 30<<10), true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *rig) {
				if err := b.poison.PutPoison(t.Context(), poisonOf(row.body), b.payloads); err != nil {
					t.Fatal(err)
				}
				m := b.only(t, poisonName)
				if !m.Expires.IsZero() || !m.Visible {
					t.Errorf("poison message expires at %s, visible %t, want never and visible", m.Expires, m.Visible)
				}
				got, err := DecodePoison(m.Text)
				want := poisonOf(row.body)
				want.V = 1
				if row.inBlob {
					want.Body, want.BodyBlob = "", "poison/m-1"
				}
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Errorf("poison message: %v (-want +got)\n%s", err, diff)
				}
				if _, kept, ok := b.ReadBlob(payloadsName, "poison/m-1"); ok != row.inBlob || ok && string(kept) != row.body {
					t.Errorf("body in a blob: %t with %d bytes, want %t", ok, len(kept), row.inBlob)
				}
				if _, err := Decode(m.Text); err == nil || !strings.Contains(err.Error(), "replayed") {
					t.Errorf("Decode of a poison message on the queue of jobs = %v, want that it must be replayed", err)
				}
			})
		})
	}
}

// TestOriginal: the text of a poisoned message comes from the message or from its own blob. A
// forged message cannot read or delete another blob.
func TestOriginal(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		large := strings.Repeat("x", MaxText)
		longest := strings.Repeat("m", maxMessageID)
		for _, row := range []struct {
			id, blob string
			valid    bool
		}{
			{"azAZ09-", "poison/azAZ09-", true}, {longest, "poison/" + longest, true},
			{longest + "m", "poison/" + longest + "m", false}, {"", "poison/x", false}, {"m-1", "payloads/m-1", false}, {"m-1", "poison/m-2", false},
			{"a`", "poison/a`", false}, {"a{", "poison/a{", false}, {"a@", "poison/a@", false}, {"a[", "poison/a[", false},
			{"a/b", "poison/a/b", false}, {"a:b", "poison/a:b", false}, {"a.b", "poison/a.b", false},
		} {
			p := Poison{MessageID: row.id, Body: "body", BodyBlob: row.blob}
			b.plant(t, row.blob, large)
			text, err := p.Original(t.Context(), b.payloads)
			if row.valid && (err != nil || text != large) || !row.valid && !errors.Is(err, ErrPayload) {
				t.Errorf("Original of message %q in %s = %d bytes, %v, want valid %t", row.id, row.blob, len(text), err, row.valid)
			}
			if err := p.DiscardOriginal(t.Context(), b.payloads); err != nil {
				t.Errorf("DiscardOriginal of message %q: %v", row.id, err)
			}
			if _, _, kept := b.ReadBlob(payloadsName, row.blob); kept == row.valid {
				t.Errorf("the blob %s of message %q is kept: %t", row.blob, row.id, kept)
			}
			if !row.valid {
				continue
			}
			if _, err := p.Original(t.Context(), b.payloads); !errors.Is(err, ErrPayload) {
				t.Errorf("Original without its blob = %v, want %v", err, ErrPayload)
			}
			if err := p.DiscardOriginal(t.Context(), b.payloads); err != nil {
				t.Errorf("a second DiscardOriginal: %v", err)
			}
			b.plant(t, row.blob, large+"x")
			if _, err := p.Original(t.Context(), b.payloads); !errors.Is(err, ErrPayload) {
				t.Errorf("Original of more than a message = %v, want %v", err, ErrPayload)
			}
		}
		if text, err := (Poison{Body: "body"}).Original(t.Context(), b.payloads); text != "body" || err != nil {
			t.Errorf("Original in the message = %q, %v", text, err)
		}
		p := Poison{MessageID: "m-1", BodyBlob: "poison/m-1"}
		b.faultOn(storage.OpGetBlob, allTries, storage.Fault{DropReply: true})
		if _, err := p.Original(t.Context(), b.payloads); err == nil || errors.Is(err, ErrPayload) {
			t.Errorf("Original without a network = %v, want an error that is not final", err)
		}
		b.faultOn(storage.OpDeleteBlob, allTries, storage.Fault{DropRequest: true})
		if err := p.DiscardOriginal(t.Context(), b.payloads); err == nil {
			t.Error("DiscardOriginal without a network = <nil>, want an error")
		}
	})
}

// plant stores a blob in the container of payloads.
func (b *rig) plant(t *testing.T, name, text string) {
	t.Helper()
	if err := b.payloads.blobs.Create(t.Context(), name, []byte(text), ""); err != nil {
		t.Fatal(err)
	}
}

func TestDecodePoisonRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"not base64":    "{}",
		"not JSON":      inBase64("hello"),
		"an envelope":   inBase64(`{"v":1,"id":"a","kind":"k"}`),
		"newer version": inBase64(`{"v":2,"reason":"r","poisoned_at":"2026-03-09T12:00:00Z"}`),
		"no object":     inBase64(`[1]`),
		"no time":       inBase64(`{"v":1,"reason":"r"}`),
		"other case":    inBase64(`{"v":1,"reason":"r","Poisoned_At":"2026-03-09T12:00:00Z"}`),
		"another type":  inBase64(`{"v":1,"reason":["r"],"poisoned_at":"2026-03-09T12:00:00Z"}`),
	} {
		for range 20 { // fields are read in any order
			if p, err := DecodePoison(text); !errors.Is(err, ErrNotPoison) {
				t.Fatalf("DecodePoison of %s = %+v, %v, want ErrNotPoison", name, p, err)
			}
		}
	}
}

// TestPutPoisonInTrouble: a message whose text or message could not be stored is not put.
func TestPutPoisonInTrouble(t *testing.T) {
	inBubble(t, func(t *testing.T, b *rig) {
		large := strings.Repeat("x", MaxText)
		b.faultOn(storage.OpPutBlob, allTries, storage.Fault{DropRequest: true})
		if err := b.poison.PutPoison(t.Context(), poisonOf(large), b.payloads); err == nil {
			t.Error("PutPoison without its blob = <nil>, want an error")
		}
		endless := poisonOf(large)
		endless.Origin = large
		b.OnCall(nil)
		if err := b.poison.PutPoison(t.Context(), endless, b.payloads); err == nil {
			t.Error("PutPoison of a message that does not fit without its text = <nil>, want an error")
		}
		b.faultOn(storage.OpPutMessage, allTries, storage.Fault{DropRequest: true})
		if err := b.poison.PutUnchanged(t.Context(), "text"); err == nil {
			t.Error("PutUnchanged without a network = <nil>, want an error")
		}
		if n := len(b.Messages(poisonName)); n != 0 {
			t.Errorf("%d messages on the poison queue, want none", n)
		}
	})
}
