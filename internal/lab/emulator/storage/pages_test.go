package storage

import (
	"fmt"
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	blobservice "github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage/protocol"
)

// must returns a function that returns the value, or ends the test.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func queueService(t *testing.T, a *fixture) *azqueue.ServiceClient {
	t.Helper()
	return must(azqueue.NewServiceClientFromConnectionString(a.ConnectionString(),
		&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: a.Transport()}}))(t)
}

// walks are the listings: each returns the number of items on each page, and the names.
var walks = map[string]func(t *testing.T, a *fixture) (pages []int, names []string){
	"flat": func(t *testing.T, a *fixture) (pages []int, names []string) {
		pager := a.blobs.ServiceClient().NewContainerClient("records").NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: new("a/")})
		for pager.More() {
			page := must(pager.NextPage(t.Context()))(t)
			pages = append(pages, len(page.Segment.BlobItems))
			for _, item := range page.Segment.BlobItems {
				names = append(names, *item.Name)
			}
		}
		return pages, names
	},
	"by delimiter": func(t *testing.T, a *fixture) (pages []int, names []string) {
		pager := a.blobs.ServiceClient().NewContainerClient("records").NewListBlobsHierarchyPager("/", nil)
		for pager.More() {
			page := must(pager.NextPage(t.Context()))(t)
			pages = append(pages, len(page.Segment.BlobItems)+len(page.Segment.BlobPrefixes))
			for _, p := range page.Segment.BlobPrefixes {
				names = append(names, *p.Name)
			}
		}
		return pages, names
	},
	"containers": func(t *testing.T, a *fixture) (pages []int, names []string) {
		pager := a.blobs.ServiceClient().NewListContainersPager(&blobservice.ListContainersOptions{Prefix: new("c-")})
		for pager.More() {
			page := must(pager.NextPage(t.Context()))(t)
			pages = append(pages, len(page.ContainerItems))
			for _, item := range page.ContainerItems {
				names = append(names, *item.Name)
			}
		}
		return pages, names
	},
	"queues": func(t *testing.T, a *fixture) (pages []int, names []string) {
		pager := queueService(t, a).NewListQueuesPager(&azqueue.ListQueuesOptions{Prefix: new("q-")})
		for pager.More() {
			page := must(pager.NextPage(t.Context()))(t)
			pages = append(pages, len(page.Queues))
			for _, item := range page.Queues {
				names = append(names, *item.Name)
			}
		}
		return pages, names
	},
}

// TestPages: with any seed every listing has all names in order, some pages are short, some
// empty, and some listings end with an empty page; with SetFullPages there is one page.
func TestPages(t *testing.T) {
	want := map[string][]string{}
	a := setup(t, Options{})
	for i := range 12 {
		blob, folder := fmt.Sprintf("a/%02d", i), fmt.Sprintf("f%02d/", i)
		name, queue := fmt.Sprintf("c-%02d", i), fmt.Sprintf("q-%02d", i)
		must(a.blob(blob).Upload(t.Context(), text("x"), nil))(t)
		must(a.blob(folder+"blob").Upload(t.Context(), text("x"), nil))(t)
		must(a.blobs.CreateContainer(t.Context(), name, nil))(t)
		must(queueService(t, a).CreateQueue(t.Context(), queue, nil))(t)
		want["flat"], want["containers"] = append(want["flat"], blob), append(want["containers"], name)
		want["by delimiter"], want["queues"] = append(want["by delimiter"], folder), append(want["queues"], queue)
	}
	want["by delimiter"] = append([]string{"a/"}, want["by delimiter"]...)
	for listing, walk := range walks {
		var short, empty, last int
		for seed := range uint64(50) {
			a.pages.Store(protocol.NewPages(seed))
			pages, names := walk(t, a)
			if !slices.Equal(names, want[listing]) {
				t.Fatalf("%s with seed %d: %q, want %q", listing, seed, names, want[listing])
			}
			for i, n := range pages {
				switch {
				case n == 0 && i == len(pages)-1:
					last++
				case n == 0:
					empty++
				case n < len(names):
					short++
				}
			}
		}
		if short < 10 || empty < 10 || last < 5 {
			t.Errorf("%s: %d short pages, %d empty ones and %d at the end with 50 seeds, want more", listing, short, empty, last)
		}
		a.SetFullPages()
		if pages, names := walk(t, a); len(pages) != 1 || len(names) != len(want[listing]) {
			t.Errorf("%s with full pages: %d names in %d pages, want all in one", listing, len(names), len(pages))
		}
	}
}
