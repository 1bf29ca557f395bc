package loop

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// httpCaller makes the calls with net/http alone, and signs them itself. It is the
// least that a Go program can do.
type httpCaller struct {
	account  string
	secret   []byte
	client   *http.Client
	messages string // path of the queue's messages
	records  string // path of the container
}

// apiVersion is the version of the protocol that is spoken.
const apiVersion = "2024-11-04"

func newHTTPCaller(l Loop) (*httpCaller, error) {
	at := ParseEndpoints(l.ConnectionString)
	secret, err := base64.StdEncoding.DecodeString(at.Key)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: NewTransport(l.Slots + claimed), Timeout: time.Minute}
	return &httpCaller{at.Account, secret, client, at.Queue + "/" + l.Queue + "/messages", at.Blob + "/" + l.Records}, nil
}

func (c *httpCaller) claim(ctx context.Context, n int) ([]message, error) {
	body, err := c.do(ctx, http.MethodGet, fmt.Sprintf("%s?numofmessages=%d&visibilitytimeout=30", c.messages, n), nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	var reply struct {
		Messages []struct {
			ID      string `xml:"MessageId"`
			Receipt string `xml:"PopReceipt"`
			Text    string `xml:"MessageText"`
		} `xml:"QueueMessage"`
	}
	if err := xml.Unmarshal(body, &reply); err != nil {
		return nil, err
	}
	list := make([]message, 0, len(reply.Messages))
	for _, m := range reply.Messages {
		list = append(list, message{m.ID, m.Receipt, m.Text})
	}
	return list, nil
}

func (c *httpCaller) record(ctx context.Context, m message) error {
	header := map[string]string{"x-ms-blob-type": "BlockBlob", "If-None-Match": "*"}
	for key, value := range recordOf(m) {
		header["x-ms-meta-"+key] = value
	}
	_, err := c.do(ctx, http.MethodPut, c.records+"/"+m.id, header, http.StatusCreated)
	return err
}

func (c *httpCaller) remove(ctx context.Context, m message) error {
	_, err := c.do(ctx, http.MethodDelete, c.messages+"/"+m.id+"?popreceipt="+url.QueryEscape(m.receipt), nil, http.StatusNoContent)
	return err
}

// do makes a call without a body and returns the reply's body.
func (c *httpCaller) do(ctx context.Context, method, address string, header map[string]string, want int) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	for key, value := range header {
		request.Header.Set(key, value)
	}
	request.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	request.Header.Set("x-ms-version", apiVersion)
	request.Header.Set("Authorization", "SharedKey "+c.account+":"+c.sign(request))
	reply, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != want {
		err = fmt.Errorf("%s %s: %s: %s", method, request.URL.Path, reply.Status, body)
	}
	return body, err
}

// sign returns the signature of a request without a body, as "Authorize with Shared
// Key" of the service's documents has it.
func (c *httpCaller) sign(r *http.Request) string {
	var text strings.Builder
	// Encoding, language, length, MD5, type, date, three conditions, range: all empty
	// but If-None-Match.
	fmt.Fprintf(&text, "%s\n\n\n\n\n\n\n\n\n%s\n\n\n", r.Method, r.Header.Get("If-None-Match"))
	type pair struct{ key, value string }
	var headers []pair
	for key, values := range r.Header {
		if key := strings.ToLower(key); strings.HasPrefix(key, "x-ms-") {
			headers = append(headers, pair{key, values[0]})
		}
	}
	slices.SortFunc(headers, func(a, b pair) int { return cmp.Compare(a.key, b.key) })
	for _, h := range headers {
		text.WriteString(h.key + ":" + h.value + "\n")
	}
	text.WriteString("/" + c.account + r.URL.EscapedPath())
	query := r.URL.Query()
	keys := make([]string, 0, len(query))
	for key := range query {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		text.WriteString("\n" + key + ":" + query.Get(key))
	}
	mac := hmac.New(sha256.New, c.secret)
	mac.Write([]byte(text.String()))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
