package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sample is a short demo: lines, a picture that changes, and a table.
func sample() recording {
	return recording{Events: []event{
		{Text: "   0.0 s  Building <worker> & \"producer\".\n"},
		{At: 8 * time.Second, Text: "   8.0 s  started:\n          four VMs\n"},
		{At: 8 * time.Second, Picture: "\n\x1b[1m 0 of 1 jobs done\x1b[m\n spot_1 \x1b[32mprocess\x1b[m " +
			"\x1b[32m█\x1b[m\x1b[33m▓▓\x1b[m\x1b[2m░░\x1b[m 60%"},
		{At: 9 * time.Second, Picture: "\n\x1b[1m 0 of 1 jobs done\x1b[m\n spot_1 \x1b[32mprocess\x1b[m \x1b[32m█████\x1b[m 99%"},
		{At: 11 * time.Second, End: true},
		{At: 11 * time.Second, Text: "every promise was kept\n"},
	}}
}

func draw(t *testing.T, r recording) string {
	t.Helper()
	var out bytes.Buffer
	if err := writeSVG(&out, r); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// textOf returns the text of a picture, and fails unless it is well-formed XML
// without scripts or anything that is loaded from elsewhere.
func textOf(t *testing.T, picture string) string {
	t.Helper()
	var text strings.Builder
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		switch token := token.(type) {
		case xml.CharData:
			text.Write(token)
		case xml.StartElement:
			if !slices.Contains([]string{"svg", "title", "style", "clipPath", "rect", "g", "text"}, token.Name.Local) {
				t.Errorf("element %s", token.Name.Local)
			}
			for _, attribute := range token.Attr {
				if strings.HasPrefix(attribute.Name.Local, "on") || strings.HasSuffix(attribute.Name.Local, "href") {
					t.Errorf("attribute %s of %s", attribute.Name.Local, token.Name.Local)
				}
			}
		}
	}
}

// TestPictureHasAllLines: every line that was printed is there, escaped, and
// the picture that the terminal drew below the lines.
func TestPictureHasAllLines(t *testing.T) {
	picture := draw(t, sample())
	text := textOf(t, picture)
	for _, want := range []string{`Building <worker> & "producer".`, "started:", "four VMs", "0 of 1 jobs done", "60%", "99%",
		"every promise was kept"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in the picture", want)
		}
	}
	for _, want := range []string{`<rect class="g"`, `<rect class="y"`, `<rect class="q"`, `<text class="b"`} {
		if !strings.Contains(picture, want) {
			t.Errorf("no %s in the picture", want)
		}
	}
	if again := draw(t, sample()); again != picture {
		t.Error("the same recording gave another picture")
	}
	if err := writeSVG(io.Discard, recording{}); err == nil {
		t.Error("a recording without lines was drawn")
	}
}

// TestTimeline: pauses are shortened, and time passes faster.
func TestTimeline(t *testing.T) {
	line := newTimeline(sample())
	if got, want := len(line.frames), int((maxPause+time.Second+2*time.Second)/speed/step)+1; got != want {
		t.Errorf("frames = %d, want %d", got, want)
	}
	first, last := line.frames[0], line.frames[len(line.frames)-1]
	if first.printed != 1 || last.printed != 4 || last.picture != nil {
		t.Errorf("first frame %+v, last %+v", first, last)
	}
	height := line.height()
	for _, s := range line.spans() {
		if s.from >= s.to || s.row < 0 || s.row >= height || s.line == "" {
			t.Errorf("span %+v", s)
		}
	}
}

func TestRuns(t *testing.T) {
	want := []textRun{{text: "a "}, {text: "██", class: "g", block: true}, {text: "▓", class: "b y", block: true}, {text: " 60%"}}
	got := runs("a \x1b[32m██\x1b[m\x1b[1;33m▓\x1b[0m 60%")
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(textRun{})); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// TestRecorder: printed text passes through, and is recorded in whole lines
// without the folders of this machine.
func TestRecorder(t *testing.T) {
	var out bytes.Buffer
	r := newRecorder(&out)
	for _, text := range []string{"files of /usr/", "local/go and 3.0 MiB/s\n"} {
		if _, err := r.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	events := r.recording().Events
	if len(events) != 1 || events[0].Text != "files of go and 3.0 MiB/s\n" || out.String() != "files of /usr/local/go and 3.0 MiB/s\n" {
		t.Errorf("recorded %+v, passed on %q", events, out.String())
	}
}

// TestPictureOfTheReadme checks that the picture in docs/ is fit for the README:
// well-formed, small, of a demo in which every promise was kept, and without
// absolute paths.
func TestPictureOfTheReadme(t *testing.T) {
	picture, err := os.ReadFile("../../docs/demo.svg")
	if err != nil {
		t.Fatal(err)
	}
	text := textOf(t, string(picture))
	if len(picture) > 150_000 {
		t.Errorf("%d bytes", len(picture))
	}
	if !strings.Contains(text, "every promise was kept") {
		t.Error("not a demo that kept its promises")
	}
	if found := regexp.MustCompile(`(?m)(?:^|[\s("])/\w+/\S*`).FindString(text); found != "" {
		t.Errorf("an absolute path: %q", found)
	}
}
