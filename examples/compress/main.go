// Command compress is a worker of your own: every flag of spotworker's, its
// built-in kinds, and the kind "compress". A blob becomes a zstd blob, frame by frame.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/spotworker/spotworker"
	"github.com/spotworker/spotworker/job"
)

// exitConfig is the exit code of a wrong configuration, as of the worker itself.
const exitConfig = 78

func main() {
	c, err := fromEnvironment(os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compress:", err)
		os.Exit(exitConfig)
	}
	spotworker.Main(job.Kinds{"compress": c.handler()})
}

// fromEnvironment reads the settings of the kind. It makes no request.
func fromEnvironment(getenv func(string) string) (*compressor, error) {
	sources, targets := names(getenv("COMPRESS_FROM")), names(getenv("COMPRESS_TO"))
	if len(sources) == 0 || len(targets) == 0 {
		return nil, errors.New("set COMPRESS_FROM and COMPRESS_TO to the containers that jobs may read and write")
	}
	account, err := connect(getenv)
	if err != nil {
		return nil, err
	}
	return &compressor{container: account.NewContainerClient, sources: sources, targets: targets, chunk: leastChunk}, nil
}

func names(list string) []string {
	return strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' })
}

// connect returns a client of the worker's own storage account, signed in as the worker.
func connect(getenv func(string) string) (*service.Client, error) {
	options := &service.ClientOptions{ClientOptions: policy.ClientOptions{Transport: newClient()}}
	if s := getenv("AZURE_STORAGE_CONNECTION_STRING"); s != "" {
		client, err := service.NewClientFromConnectionString(s, options)
		if err != nil {
			return nil, errors.New("AZURE_STORAGE_CONNECTION_STRING cannot be used") // the error may repeat the key
		}
		return client, nil
	}
	name := getenv("SPOTWORKER_ACCOUNT")
	if name == "" {
		return nil, errors.New("no storage account: set SPOTWORKER_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING")
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil) // AZURE_CLIENT_ID selects the identity
	if err != nil {
		return nil, fmt.Errorf("sign in: %w", err)
	}
	return service.NewClient("https://"+name+".blob.core.windows.net/", credential, options)
}

// newClient returns an HTTP client that leaves blobs as they are stored. By default
// net/http decompresses a blob with Content-Encoding gzip, which changes its size and hash.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableCompression: true,
		MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 5 * time.Second,
	}}
}
