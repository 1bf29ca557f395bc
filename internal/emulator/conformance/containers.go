package conformance

import (
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
)

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
