package conformance

import (
	"fmt"
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

var listCases = []testCase{
	{fact: "ListShowsMetadataOnlyWhenAsked", check: listMetadata},
	{fact: "ListPagesInTheOrderOfNames", check: listPages},
	{fact: "ListByPrefix", check: listPrefix},
	{fact: "ListByDelimiterShowsCommonPrefixes", check: listDelimiter},
	{fact: "ListByDelimiterPages", check: listDelimiterPages},
	{fact: "ListShowsStagedOnlyBlobsWhenAsked", check: listUncommitted},
	{fact: "ListOfAnEmptyContainer", check: listEmpty},
}

// fill uploads a small blob under each name.
func fill(t *testing.T, c *container.Client, names ...string) {
	t.Helper()
	for _, name := range names {
		must(c.NewBlockBlobClient(name).Upload(t.Context(), body(name), &blockblob.UploadOptions{
			Metadata: map[string]*string{"kind": new("k" + fmt.Sprint(len(name))), "status": new("a & b")},
		}))(t, "Upload")
	}
}

// listAll returns the names in a flat listing, and the number of pages.
func listAll(t *testing.T, c *container.Client, o *container.ListBlobsFlatOptions) (names []string, pages int) {
	t.Helper()
	for pager := c.NewListBlobsFlatPager(o); pager.More(); pages++ {
		page := must(pager.NextPage(t.Context()))(t, "list blobs")
		for _, item := range page.Segment.BlobItems {
			names = append(names, *item.Name)
		}
	}
	return names, pages
}

func listMetadata(t *testing.T, e *env) {
	c := e.container(t)
	fill(t, c, "blob")
	plain := must(c.NewListBlobsFlatPager(nil).NextPage(t.Context()))(t, "list blobs")
	if got := plain.Segment.BlobItems[0].Metadata; len(got) != 0 {
		t.Errorf("listed %d metadata without asking, want none", len(got))
	}
	asked := must(c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
		Include: container.ListBlobsInclude{Metadata: true},
	}).NextPage(t.Context()))(t, "list blobs")
	item := asked.Segment.BlobItems[0]
	wantMetadata(t, item.Metadata, map[string]string{"kind": "k4", "status": "a & b"})
	if *item.Properties.ContentLength != 4 || item.Properties.LastModified == nil {
		t.Errorf("listed length %d and Last-Modified %v, want 4 and a time", *item.Properties.ContentLength, item.Properties.LastModified)
	}
}

func listPages(t *testing.T, e *env) {
	c := e.container(t)
	fill(t, c, "e", "b", "d/1", "a", "c", "d/2", "~")
	names, pages := listAll(t, c, &container.ListBlobsFlatOptions{MaxResults: new(int32(3))})
	if want := []string{"a", "b", "c", "d/1", "d/2", "e", "~"}; !slices.Equal(names, want) || pages != 3 {
		t.Errorf("listed %q in %d pages, want %q in 3", names, pages, want)
	}
}

func listPrefix(t *testing.T, e *env) {
	c := e.container(t)
	fill(t, c, "a", "b/1", "b/2", "bb", "c")
	names, _ := listAll(t, c, &container.ListBlobsFlatOptions{Prefix: new("b/")})
	if want := []string{"b/1", "b/2"}; !slices.Equal(names, want) {
		t.Errorf("listed %q, want %q", names, want)
	}
}

// walk lists by "/" and returns blobs and prefixes.
func walk(t *testing.T, c *container.Client, prefix string, pageSize int32) (blobs, prefixes []string) {
	t.Helper()
	pager := c.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{Prefix: &prefix, MaxResults: &pageSize})
	for pager.More() {
		page := must(pager.NextPage(t.Context()))(t, "list blobs")
		for _, item := range page.Segment.BlobItems {
			blobs = append(blobs, *item.Name)
		}
		for _, p := range page.Segment.BlobPrefixes {
			prefixes = append(prefixes, *p.Name)
		}
	}
	return blobs, prefixes
}

func listDelimiter(t *testing.T, e *env) {
	c := e.container(t)
	fill(t, c, "a", "b/1", "b/2", "b/c/3", "b/c/\u017c", "d/4", "d/\u017c", "e")
	blobs, prefixes := walk(t, c, "", 5000)
	if !slices.Equal(blobs, []string{"a", "e"}) || !slices.Equal(prefixes, []string{"b/", "d/"}) {
		t.Errorf("listed %q and prefixes %q, want a, e and b/, d/", blobs, prefixes)
	}
	blobs, prefixes = walk(t, c, "b/", 5000)
	if !slices.Equal(blobs, []string{"b/1", "b/2"}) || !slices.Equal(prefixes, []string{"b/c/"}) {
		t.Errorf("listed %q and prefixes %q below b/, want b/1, b/2 and b/c/", blobs, prefixes)
	}
}

func listDelimiterPages(t *testing.T, e *env) {
	c := e.container(t)
	fill(t, c, "a", "b/1", "b/2", "c/1", "c/2", "d")
	blobs, prefixes := walk(t, c, "", 1)
	if !slices.Equal(blobs, []string{"a", "d"}) || !slices.Equal(prefixes, []string{"b/", "c/"}) {
		t.Errorf("listed %q and prefixes %q a page of one at a time, want a, d and b/, c/", blobs, prefixes)
	}
}

func listUncommitted(t *testing.T, e *env) {
	c := e.container(t)
	fill(t, c, "committed")
	stage(t, c.NewBlockBlobClient("staged"), blockID("1"), "one")
	names, _ := listAll(t, c, &container.ListBlobsFlatOptions{Include: container.ListBlobsInclude{UncommittedBlobs: true}})
	if want := []string{"committed", "staged"}; !slices.Equal(names, want) {
		t.Errorf("listed %q, want %q", names, want)
	}
}

func listEmpty(t *testing.T, e *env) {
	if names, pages := listAll(t, e.container(t), nil); len(names) != 0 || pages != 1 {
		t.Errorf("listed %q in %d pages, want nothing in 1", names, pages)
	}
}

var containerCases = []testCase{
	{fact: "CreateContainerAgainIs409", check: createContainerAgain},
	{fact: "MissingContainerIs404", check: missingContainer},
	{fact: "ContainerMetadataRoundTrip", check: containerMetadata},
	{fact: "DeletedContainerIsGone", check: deletedContainer},
	{fact: "ListContainersByPrefix", check: listContainers},
}

func createContainerAgain(t *testing.T, e *env) {
	_, err := e.container(t).Create(t.Context(), nil)
	wantRefused(t, err, 409, "ContainerAlreadyExists", "Create again")
}

func missingContainer(t *testing.T, e *env) {
	c := e.blobs.ServiceClient().NewContainerClient(uniqueName())
	_, err := c.NewBlockBlobClient("blob").Upload(t.Context(), body("text"), nil)
	wantRefused(t, err, 404, "ContainerNotFound", "Upload")
	_, err = c.NewBlockBlobClient("blob").DownloadStream(t.Context(), nil)
	wantRefused(t, err, 404, "ContainerNotFound", "DownloadStream")
	_, err = c.GetProperties(t.Context(), nil)
	wantRefused(t, err, 404, "ContainerNotFound", "GetProperties")
}

func containerMetadata(t *testing.T, e *env) {
	c := e.container(t)
	must(c.SetMetadata(t.Context(), &container.SetMetadataOptions{Metadata: map[string]*string{"use": new("records")}}))(t, "SetMetadata")
	props := must(c.GetProperties(t.Context(), nil))(t, "GetProperties")
	wantMetadata(t, props.Metadata, map[string]string{"use": "records"})
}

func deletedContainer(t *testing.T, e *env) {
	c := e.container(t)
	must(c.NewBlockBlobClient("blob").Upload(t.Context(), body("text"), nil))(t, "Upload")
	must(c.Delete(t.Context(), nil))(t, "Delete")
	_, err := c.NewBlobClient("blob").GetProperties(t.Context(), nil)
	wantRefused(t, err, 404, "", "GetProperties of a blob after Delete")
}

func listContainers(t *testing.T, e *env) {
	prefix := uniqueName()
	for _, suffix := range []string{"-a", "-b"} {
		must(e.blobs.CreateContainer(t.Context(), prefix+suffix, nil))(t, "CreateContainer")
	}
	pager := e.blobs.NewListContainersPager(&service.ListContainersOptions{Prefix: &prefix, MaxResults: new(int32(1))})
	var got []string
	for pager.More() {
		page := must(pager.NextPage(t.Context()))(t, "list containers")
		for _, item := range page.ContainerItems {
			got = append(got, *item.Name)
		}
	}
	if len(got) != 2 || got[0] != prefix+"-a" || got[1] != prefix+"-b" {
		t.Errorf("listed %q, want the two with prefix %q", got, prefix)
	}
}
