package conformance

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

var raceCases = []testCase{
	{fact: "OneOfManyConcurrentCreatesWins", check: concurrentCreates},
	{fact: "ConcurrentWritesUnderETagsLoseNothing", check: concurrentIncrements},
	{fact: "ConcurrentDequeuesShareNoMessage", check: concurrentDequeues},
}

const racers = 8

// race runs f on several goroutines and waits for them.
func race(f func(racer int)) {
	var wg sync.WaitGroup
	for racer := range racers {
		wg.Go(func() { f(racer) })
	}
	wg.Wait()
}

func concurrentCreates(t *testing.T, e *env) {
	b := e.blob(t)
	var winners atomic.Int32
	race(func(racer int) {
		_, err := b.Upload(t.Context(), body(fmt.Sprint(racer)), &blockblob.UploadOptions{AccessConditions: createOnly()})
		if err == nil {
			winners.Add(1)
			return
		}
		wantRefused(t, err, 409, "BlobAlreadyExists", "Upload with If-None-Match: *")
	})
	if got := winners.Load(); got != 1 {
		t.Errorf("%d of %d concurrent creates succeeded, want 1", got, racers)
	}
}

// A counter in a blob, raised by reading and writing under the ETag read.
func concurrentIncrements(t *testing.T, e *env) {
	const each = 4
	b := e.blob(t)
	upload(t, b, "0")
	race(func(int) {
		for done := 0; done < each && !t.Failed(); {
			err := increment(t, b)
			if err == nil {
				done++
				continue
			}
			wantRefused(t, err, 412, "ConditionNotMet", "increment of the counter")
		}
	})
	wantBody(t, b, strconv.Itoa(racers*each))
}

// increment raises the counter by one, or fails as its write does.
func increment(t *testing.T, b *blockblob.Client) error {
	t.Helper()
	n, tag, err := readCounter(t, b)
	if err != nil {
		return err
	}
	_, err = b.Upload(t.Context(), body(strconv.Itoa(n+1)), &blockblob.UploadOptions{AccessConditions: ifMatch(tag)})
	return err
}

func readCounter(t *testing.T, b *blockblob.Client) (n int, tag azcore.ETag, err error) {
	t.Helper()
	res, err := b.DownloadStream(t.Context(), nil)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, "", err
	}
	n, err = strconv.Atoi(string(data))
	return n, *res.ETag, err
}

func concurrentDequeues(t *testing.T, e *env) {
	const total = 64
	q := e.queue(t)
	for i := range total {
		put(t, q, strconv.Itoa(i))
	}
	var mu sync.Mutex
	seen := make(map[string]int)
	race(func(int) {
		for {
			res, err := q.DequeueMessages(t.Context(), &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(5)),
				VisibilityTimeout: new(int32(300))})
			if err != nil {
				t.Errorf("DequeueMessages: %v", err)
			}
			if err != nil || len(res.Messages) == 0 {
				return
			}
			mu.Lock()
			for _, m := range res.Messages {
				seen[*m.MessageText]++
			}
			mu.Unlock()
		}
	})
	for text, n := range seen {
		if n != 1 {
			t.Errorf("message %s was given %d times, want once", text, n)
		}
	}
	if len(seen) != total {
		t.Errorf("dequeued %d messages, want %d", len(seen), total)
	}
}
