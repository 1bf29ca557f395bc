package blobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// service answers each call for a page with its result for the marker.
type service func(ctx context.Context, marker string) (body string, err error)

// Do implements policy.Transporter.
func (s service) Do(r *http.Request) (*http.Response, error) {
	body, err := s(r.Context(), r.URL.Query().Get("marker"))
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{"Content-Type": {"application/xml"}, "Date": {"Mon, 23 Nov 2026 12:00:00 GMT"}},
	}, nil
}

func (s service) container(t *testing.T) *container.Client {
	t.Helper()
	c, err := container.NewClientWithNoCredential("https://storage.invalid/data?sig=secret", &container.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: s, Retry: policy.RetryOptions{MaxRetries: -1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// item is a blob of a list.
func item(name string) string {
	return "<Blob><Name>" + name + "</Name><Properties><Last-Modified>Mon, 23 Nov 2026 12:00:00 GMT</Last-Modified>" +
		"<Etag>0x1</Etag><Content-Length>3</Content-Length></Properties></Blob>"
}

// xmlPage is a list.
func xmlPage(next string, items ...string) string {
	return "<EnumerationResults><Blobs>" + strings.Join(items, "") + "</Blobs><NextMarker>" + next + "</NextMarker></EnumerationResults>"
}

// read returns the names of a listing, and its error.
func (s service) read(t *testing.T, most time.Duration) (names []string, err error) {
	t.Helper()
	for b, err := range In(s.container(t)).Within(most).List(t.Context(), "", false) {
		if err != nil {
			return names, err
		}
		names = append(names, fmt.Sprint(b.Name, b.ETag, b.Size, " ", b.Age()))
	}
	return names, nil
}

// TestPages: all pages are read, and the limit is for one page.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := service(func(ctx context.Context, marker string) (string, error) {
			select {
			case <-time.After(9 * time.Second):
			case <-ctx.Done():
				return "", ctx.Err()
			}
			n, _ := strconv.Atoi(marker)
			switch n {
			case 0, 2:
				return xmlPage(strconv.Itoa(n+1), item(fmt.Sprint("b", n))), nil
			case 1:
				return xmlPage("2"), nil // without a blob
			}
			return xmlPage("", item("b3")), nil
		})
		names, err := slow.read(t, 10*time.Second)
		if got, want := strings.Join(names, " "), `b0"0x1"3 0s b2"0x1"3 0s b3"0x1"3 0s`; got != want || err != nil {
			t.Errorf("names = %q, %v, want %q", got, err, want)
		}
		if _, err := slow.read(t, 8*time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a limit of 8s = %v, want that the time is over", err)
		}
	})
}

// TestOddPages: an answer that lacks a part is asked for again, and then an error of the
// connection; so is a listing that does not come to an end.
func TestOddPages(t *testing.T) {
	whole := item("a")
	counted := 0
	for _, tt := range []struct {
		name  string
		serve service
		want  int // blobs; -1 for an error
		most  int // calls
	}{
		{"whole", func(context.Context, string) (string, error) { return xmlPage("", whole), nil }, 1, 1},
		{"empty", func(context.Context, string) (string, error) { return xmlPage(""), nil }, 0, 1},
		{"once without blobs", func(context.Context, string) (string, error) {
			if counted == 1 {
				return "<EnumerationResults></EnumerationResults>", nil
			}
			return xmlPage("", whole), nil
		}, 1, 2},
		{"without blobs", func(context.Context, string) (string, error) { return "<EnumerationResults></EnumerationResults>", nil }, -1, tries},
		{"without anything", func(context.Context, string) (string, error) { return "", nil }, -1, tries},
		{"cut off", func(context.Context, string) (string, error) { return xmlPage("", whole)[:200], nil }, -1, tries},
		{"the same marker", func(context.Context, string) (string, error) { return xmlPage("m", item("a")), nil }, -1, 3},
		{"markers in a circle", func(_ context.Context, m string) (string, error) {
			return xmlPage(map[string]string{"": "1", "1": "2", "2": "1"}[m], item("b"+m)), nil
		}, -1, 4},
		{"new markers for one page", func(context.Context, string) (string, error) { return xmlPage(strconv.Itoa(counted), item("a")), nil },
			-1, 3},
		{"new markers and no blobs", func(context.Context, string) (string, error) { return xmlPage(strconv.Itoa(counted)), nil }, -1, mostEmpty +
			2},
	} {
		checkOdd(t, tt.name, tt.serve, tt.want, tt.most, &counted)
	}
	for _, part := range []string{"Name", "Last-Modified", "Etag", "Content-Length", "Properties"} {
		before, after, _ := strings.Cut(whole, "<"+part+">")
		_, after, _ = strings.Cut(after, "</"+part+">")
		cut := before + after
		checkOdd(t, "a blob without "+part, func(context.Context, string) (string, error) { return xmlPage("", whole, cut), nil }, -1, tries,
			&counted)
	}
}

func checkOdd(t *testing.T, name string, serve service, want, most int, counted *int) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			*counted = 0
			names, err := service(func(ctx context.Context, marker string) (string, error) {
				*counted++
				return serve(ctx, marker)
			}).read(t, time.Minute)
			if *counted > most {
				t.Errorf("calls = %d, want %d at most", *counted, most)
			}
			if want >= 0 {
				if err != nil || len(names) != want {
					t.Errorf("blobs = %q, %v, want %d", names, err, want)
				}
				return
			}
			failed, ok := errors.AsType[*url.Error](err)
			if !ok || strings.Contains(failed.Error(), "secret") {
				t.Errorf("error = %v, want one of the connection, without the signature", err)
			}
		})
	})
}

// TestPagesOfTheEmulator: whatever pages a listing has, all of its blobs are read.
func TestPagesOfTheEmulator(t *testing.T) {
	for seed := range uint64(100) {
		server := storage.New(storage.Options{PageSeed: seed})
		client, err := container.NewClientFromConnectionString(server.ConnectionString(), "data", &container.ClientOptions{
			ClientOptions: azcore.ClientOptions{Transport: server.Transport()},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := range 9 {
			want = append(want, fmt.Sprint("jobs/", i))
			if _, err := client.NewBlockBlobClient(want[i]).UploadBuffer(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for b, err := range In(client).List(t.Context(), "jobs/", false) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, b.Name)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %q, want %q", seed, got, want)
		}
	}
}
