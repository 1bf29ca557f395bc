package spotworker_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// TestMain gives the example a local storage account with a job in its queue.
func TestMain(m *testing.M) {
	server := storage.New(storage.Options{})
	if err := prepare(server); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func prepare(server *storage.Server) error {
	connection, err := server.Listen(storage.Addresses{})
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"AZURE_STORAGE_CONNECTION_STRING": connection, "SPOTWORKER_METADATA_ENDPOINT": "none", "SPOTWORKER_LISTEN": "none",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		return err
	}
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: connection})
	if err != nil {
		return err
	}
	containers := map[string]*container.Client{}
	for _, name := range []string{names.Records, names.Payloads, names.Workers} {
		containers[name] = account.Container(name)
	}
	stores := deployment.StoresOf(account, names)
	ctx := context.Background()
	if err := producer.Create(ctx, []*queue.Queue{stores.Queue, stores.Poison}, containers); err != nil {
		return err
	}
	return stores.Queue.Put(ctx, queue.Envelope{ID: "cat", Kind: "thumbnail", Payload: queue.BytesPayload([]byte("cat.jpg")),
		EnqueuedAt: time.Now()}, 0)
}
