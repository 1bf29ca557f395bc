package azure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// operations are calls that rely on parts of their answers, and those parts.
var operations = []struct {
	name string
	call func(ctx context.Context, a *Account) error
	rely []string // headers
}{
	{"GetBlob", func(ctx context.Context, a *Account) error {
		reply, err := a.Container("data").NewBlobClient("b").DownloadStream(ctx, nil)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(reply.Body)
		return errors.Join(err, wanted(len(data), 10), wanted(*reply.ContentLength, 10), wanted(*reply.ETag != "", true))
	}, []string{"ETag", "Last-Modified", "Content-Length", "Date"}},
	{"GetBlob of a range", func(ctx context.Context, a *Account) error {
		reply, err := a.Container("data").NewBlobClient("b").DownloadStream(ctx,
			&blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: 3, Count: 4}})
		if err != nil {
			return err
		}
		data, err := io.ReadAll(reply.Body)
		return errors.Join(err, wanted(string(data), "3456"))
	}, []string{"ETag", "Last-Modified", "Content-Length", "Content-Range", "Date"}},
	{"GetBlobProperties", func(ctx context.Context, a *Account) error {
		reply, err := a.Container("data").NewBlobClient("b").GetProperties(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(wanted(*reply.ContentLength, 10), wanted(*reply.ETag != "", true),
			wanted(reply.LastModified.IsZero() || reply.Date.IsZero(), false))
	}, []string{"ETag", "Last-Modified", "Content-Length", "Date"}},
	{"PutBlob", func(ctx context.Context, a *Account) error {
		reply, err := a.Container("data").NewBlockBlobClient("w").Upload(ctx, streaming.NopCloser(strings.NewReader("x")), nil)
		if err != nil {
			return err
		}
		return wanted(*reply.ETag != "", true)
	}, []string{"ETag", "Last-Modified"}},
	{"PutBlockList", func(ctx context.Context, a *Account) error {
		reply, err := a.Container("data").NewBlockBlobClient("w").CommitBlockList(ctx, nil, nil)
		if err != nil {
			return err
		}
		return wanted(*reply.ETag != "", true)
	}, []string{"ETag", "Last-Modified"}},
	{"SetBlobMetadata", func(ctx context.Context, a *Account) error {
		reply, err := a.Container("data").NewBlobClient("b").SetMetadata(ctx, map[string]*string{"a": new("b")}, nil)
		if err != nil {
			return err
		}
		return wanted(*reply.ETag != "", true)
	}, []string{"ETag", "Last-Modified"}},
	{"GetBlockList", func(ctx context.Context, a *Account) error {
		_, err := a.Container("data").NewBlockBlobClient("b").GetBlockList(ctx, blockblob.BlockListTypeCommitted, nil)
		return err
	}, []string{"Date"}},
	{"ListBlobs", func(ctx context.Context, a *Account) error {
		_, err := a.Container("data").NewListBlobsFlatPager(nil).NextPage(ctx)
		return err
	}, []string{"Date"}},
	{"GetQueueMetadata", func(ctx context.Context, a *Account) error {
		reply, err := a.Queue("jobs").GetProperties(ctx, nil)
		if err != nil {
			return err
		}
		return wanted(*reply.ApproximateMessagesCount > 0, true)
	}, []string{"x-ms-approximate-messages-count", "Date"}},
	{"GetMessages", func(ctx context.Context, a *Account) error {
		_, err := a.Queue("jobs").DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: new(int32(2)),
			VisibilityTimeout: new(int32(1))})
		return err
	}, []string{"Date"}},
	{"UpdateMessage", func(ctx context.Context, a *Account) error {
		put, err := a.Queue("jobs").EnqueueMessage(ctx, "m", nil)
		if err != nil {
			return err
		}
		m := put.Messages[0]
		reply, err := a.Queue("jobs").UpdateMessage(ctx, *m.MessageID, *m.PopReceipt, "m",
			&azqueue.UpdateMessageOptions{VisibilityTimeout: new(int32(9))})
		if err != nil {
			return err
		}
		return wanted(*reply.PopReceipt != "", true)
	}, []string{"x-ms-popreceipt"}},
}

func wanted[T comparable](got, want T) error {
	if got != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

// spoilt is a transport that changes the answers of another one.
type spoilt struct {
	policy.Transporter

	spoil func(*http.Request, *http.Response)
}

// Do implements policy.Transporter.
func (s *spoilt) Do(r *http.Request) (*http.Response, error) {
	resp, err := s.Transporter.Do(r)
	if err == nil && s.spoil != nil && resp.StatusCode < 300 {
		s.spoil(r, resp)
	}
	return resp, err
}

// spoiltAccount is an account with a blob and a message.
func spoiltAccount(t testing.TB) (*Account, *spoilt) {
	t.Helper()
	server := storage.New(storage.Options{})
	transport := &spoilt{Transporter: server.Transport()}
	account, err := Connect(AccountConfig{ConnectionString: server.ConnectionString(), Transport: transport,
		Retry: &policy.RetryOptions{MaxRetries: -1}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = account.Container("data").Create(t.Context(), nil)
	_, err2 := account.Container("data").NewBlockBlobClient("b").Upload(t.Context(), streaming.NopCloser(strings.NewReader("0123456789")), nil)
	_, err3 := account.Queue("jobs").Create(t.Context(), nil)
	_, err4 := account.Queue("jobs").EnqueueMessage(t.Context(), "m", nil)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	return account, transport
}

// TestAnswersWithoutAPart: a success that lacks a header on which callers rely is an
// error of the connection, for every operation; without any other header the call works.
func TestAnswersWithoutAPart(t *testing.T) {
	for _, op := range operations {
		account, transport := spoiltAccount(t)
		var all []string
		transport.spoil = func(r *http.Request, resp *http.Response) {
			all = all[:0]
			for header := range resp.Header {
				all = append(all, header)
			}
		}
		if err := op.call(t.Context(), account); err != nil {
			t.Fatalf("%s: %v", op.name, err)
		}
		for _, header := range all {
			relies := false
			for _, one := range op.rely {
				relies = relies || http.CanonicalHeaderKey(one) == header
			}
			transport.spoil = func(r *http.Request, resp *http.Response) {
				if r.Method == http.MethodPost {
					return // that prepares the call
				}
				resp.Header.Del(header)
				if header == "Content-Length" {
					resp.ContentLength = -1
				}
			}
			err := op.call(t.Context(), account)
			_, lost := errors.AsType[*url.Error](err)
			if relies != lost || !relies && err != nil {
				t.Errorf("%s without %s = %v; an error of the connection: %t, want %t", op.name, header, err, lost, relies)
			}
		}
	}
}

// endless is a body that does not end.
type endless struct{ read *int64 }

func (e endless) Read(p []byte) (int, error) {
	*e.read += int64(len(p))
	return len(p), nil
}
func (endless) Close() error { return nil }

// TestEndlessAnswers: no answer takes more memory than requested, and an answer without
// an end is an error.
func TestEndlessAnswers(t *testing.T) {
	limits := map[string]int64{"GetBlockList": maxBlockList, "ListBlobs": listedPage*maxListed + maxOther, "GetMessages": 2*maxMessage +
		maxOther}
	for _, op := range operations {
		most, ok := limits[op.name]
		if !ok {
			most = maxOther
		}
		account, transport := spoiltAccount(t)
		for _, stated := range []int64{-1, 1 << 40} {
			if stated > 0 && op.name == "GetBlob" {
				continue // a blob may be as long as its header says; readers bound their reads
			}
			var read int64
			transport.spoil = func(r *http.Request, resp *http.Response) {
				if r.Method != http.MethodPost && r.Method != http.MethodHead {
					resp.Body, resp.ContentLength = endless{&read}, stated
				}
			}
			// The header of a blob still says its length.
			if err := op.call(t.Context(), account); err == nil && (stated < 0 || read > 0) && op.name != "GetBlobProperties" {
				t.Errorf("%s with an endless body of %d bytes = nil, want an error", op.name, stated)
			}
			if read > most+(64<<10) && !strings.HasPrefix(op.name, "GetBlob") {
				t.Errorf("%s read %d bytes, want %d at most", op.name, read, most)
			}
		}
	}
	account, transport := spoiltAccount(t)
	var read int64
	transport.Transporter = answer(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"X-Ms-Error-Code": {"AuthorizationFailure"}},
			Body: endless{&read}, ContentLength: -1, Request: r}, nil
	})
	_, err := account.Queue("jobs").GetProperties(t.Context(), nil)
	if read > maxRefusal || err == nil || !strings.Contains(Explain(err), "network rules") {
		t.Errorf("a refusal with an endless body = %v after %d bytes, want the refusal and %d at most", err, read, maxRefusal)
	}
}

// TestOtherRange: an answer with another part of a blob than was asked for is an error of the
// connection, and so is a 304 without a condition.
func TestOtherRange(t *testing.T) {
	for name, spoil := range map[string]func(*http.Request, *http.Response){
		"the whole blob": func(_ *http.Request, resp *http.Response) { resp.StatusCode = http.StatusOK },
		"another offset": func(_ *http.Request, resp *http.Response) { resp.Header.Set("Content-Range", "bytes 0-3/10") },
		"a longer part":  func(_ *http.Request, resp *http.Response) { resp.ContentLength = 5 },
		"not modified":   func(_ *http.Request, resp *http.Response) { resp.StatusCode = http.StatusNotModified },
	} {
		account, transport := spoiltAccount(t)
		transport.spoil = spoil
		_, err := account.Container("data").NewBlobClient("b").DownloadStream(t.Context(),
			&blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: 3, Count: 4}})
		if _, ok := errors.AsType[*url.Error](err); !ok {
			t.Errorf("%s = %v, want an error of the connection", name, err)
		}
	}
}
