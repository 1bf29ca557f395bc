package messagelist

import (
	"context"
	"encoding/xml"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/google/go-cmp/cmp"
)

const (
	head    = "\ufeff" + `<?xml version="1.0" encoding="utf-8"?><QueueMessagesList>`
	tail    = `</QueueMessagesList>`
	message = `<QueueMessage><MessageId>5974b586-0df3-4e2d-ad0c-18e3892bfca2</MessageId>` +
		`<InsertionTime>Fri, 09 Oct 2026 21:04:30 GMT</InsertionTime>` +
		`<ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>YzQ4Yzg1MDIt+/==</PopReceipt>` +
		`<TimeNextVisible>Fri, 09 Oct 2026 23:29:20 GMT</TimeNextVisible><DequeueCount>1</DequeueCount>` +
		`<MessageText>eyJ2IjoxfQ==</MessageText></QueueMessage>`
)

// sdkMessages returns the messages of a response as the SDK decodes it.
func sdkMessages(tb testing.TB, body string) ([]Message, error) {
	tb.Helper()
	var list struct { // as the SDK's generated type
		Items []*azqueue.DequeuedMessage `xml:"QueueMessage"`
	}
	if err := xml.Unmarshal([]byte(body), &list); err != nil {
		return nil, err
	}
	var messages []Message
	for _, m := range list.Items {
		messages = append(messages, Message{
			ID: *m.MessageID, Receipt: *m.PopReceipt, Text: *m.MessageText, Deliveries: *m.DequeueCount,
			InsertedAt: *m.InsertionTime, ExpiresAt: *m.ExpirationTime,
		})
	}
	return messages, nil
}

// TestDecode checks the forms in which a service writes a list.
func TestDecode(t *testing.T) {
	for name, body := range map[string]string{
		"one message":    head + message + tail,
		"two messages":   head + message + strings.Replace(message, "5974b586", "6974b586", 1) + tail,
		"no message":     head + tail,
		"empty element":  `<?xml version="1.0" encoding="utf-8"?><QueueMessagesList />`,
		"no declaration": `<QueueMessagesList>` + message + tail,
		"indented":       strings.ReplaceAll(head+message+tail, "><", ">\n  <"),
		"empty text":     strings.Replace(head+message+tail, "eyJ2IjoxfQ==", "", 1),
		"other order": head + strings.Replace(strings.Replace(message, "<DequeueCount>1</DequeueCount>", "", 1), "<MessageId>",
			"<DequeueCount>1</DequeueCount><MessageId>", 1) + tail,
		"spaces in a text": strings.Replace(head+message+tail, "eyJ2IjoxfQ==", ` make "it" so `, 1),
	} {
		want, err := sdkMessages(t, body)
		if err != nil {
			t.Fatalf("%s: SDK: %v", name, err)
		}
		got, ok := decode([]byte(body))
		if diff := cmp.Diff(want, got, equalTimes, noNil); !ok || diff != "" {
			t.Errorf("%s: decode = %t, (-want +got)\n%s", name, ok, diff)
		}
	}
}

var (
	equalTimes = cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })
	noNil      = cmp.Transformer("list", func(m []Message) []Message { return append([]Message{}, m...) })
)

// TestLeftToTheSDK checks that any other form is left to the SDK.
func TestLeftToTheSDK(t *testing.T) {
	for name, change := range map[string][2]string{
		"entity":             {"eyJ2IjoxfQ==", "a &amp; b"},
		"section":            {"eyJ2IjoxfQ==", "<![CDATA[a]]>"},
		"comment":            {"<DequeueCount>", "<!-- - --><DequeueCount>"},
		"comment in a text":  {"eyJ2IjoxfQ==", "a<!-- - -->b"},
		"attribute":          {"<DequeueCount>", `<DequeueCount a="b">`},
		"other language":     {"eyJ2IjoxfQ==", "数学"},
		"line break":         {"eyJ2IjoxfQ==", "a\r\nb"},
		"control character":  {"eyJ2IjoxfQ==", "\x01"},
		"unknown element":    {"<DequeueCount>", "<New>1</New><DequeueCount>"},
		"element twice":      {"<DequeueCount>", "<DequeueCount>1</DequeueCount><DequeueCount>"},
		"element missing":    {"<DequeueCount>1</DequeueCount>", ""},
		"element in element": {"<DequeueCount>1", "<DequeueCount><a>1</a>"},
		"other end tag":      {"</DequeueCount>", "</Dequeue>"},
		"negative number":    {"<DequeueCount>1", "<DequeueCount>-1"},
		"huge number":        {"<DequeueCount>1", "<DequeueCount>9223372036854775808"},
		"other zone":         {"04:30 GMT", "04:30 CET"},
		"no such day":        {"09 Oct 2026 21", "31 Feb 2026 21"},
		"no such weekday":    {"Fri, 09 Oct 2026 21", "Fro, 09 Oct 2026 21"},
		"part of two names":  {"09 Oct 2026 21", "09 ctN 2026 21"},
		"no such hour":       {"21:04:30", "24:04:30"},
		"cut off":            {"</QueueMessage>", ""},
		"not closed":         {tail, ""},
		"more behind":        {tail, tail + "x"},
		"other declaration":  {`encoding="utf-8"`, `encoding="latin1"`},
	} {
		body := strings.Replace(head+message+tail, change[0], change[1], 1)
		if body == head+message+tail {
			t.Fatalf("%s: nothing was changed", name)
		}
		if got, ok := decode([]byte(body)); ok {
			t.Errorf("%s: decode = %+v, want the list left to the SDK", name, got)
		}
	}
}

// TestPolicy checks that a call gets its messages from the SDK where they were not
// decoded, and never twice.
func TestPolicy(t *testing.T) {
	for name, tt := range map[string]struct {
		body    string
		decoded bool
	}{
		"known form": {head + message + tail, true},
		"other form": {strings.Replace(head+message+tail, "eyJ2IjoxfQ==", "&lt;", 1), false},
	} {
		client, err := azqueue.NewQueueClientWithNoCredential("http://127.0.0.1:1/q", &azqueue.ClientOptions{ClientOptions: policy.ClientOptions{
			Transport: reply(tt.body), PerCallPolicies: []policy.Policy{Policy{}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		var list List
		got, err := client.DequeueMessages(list.In(t.Context()), nil)
		if err != nil || list.Decoded != tt.decoded || len(list.Messages)+len(got.Messages) != 1 || len(list.Messages) == 1 != tt.decoded {
			t.Errorf("%s: DequeueMessages = %d messages, %v, decoded %t with %d, want 1 in all", name, len(got.Messages), err, list.Decoded,
				len(list.Messages))
		}
		if got, err := client.DequeueMessages(t.Context(), nil); err != nil || len(got.Messages) != 1 {
			t.Errorf("%s: DequeueMessages without a list = %d messages, %v, want 1", name, len(got.Messages), err)
		}
	}
}

// reply is a transport with one response.
type reply string

func (r reply) Do(req *http.Request) (*http.Response, error) {
	if err := context.Cause(req.Context()); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body{strings.NewReader(string(r))}, Request: req}, nil
}

type body struct{ *strings.Reader }

func (body) Close() error { return nil }

// FuzzDecode: for any document, a list that is decoded here equals the SDK's decoding.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		head + message + tail, head + message + message + tail, head + tail, "<QueueMessagesList/>",
		strings.Replace(head+message+tail, "eyJ2IjoxfQ==", "a]]>b", 1),
		strings.Replace(head+message+tail, "eyJ2IjoxfQ==", "a &amp; b", 1),
		strings.Replace(head+message+tail, "09 Oct 2026", "29 Feb 2028", 1),
		strings.ReplaceAll(head+message+tail, "><", "> <"),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := decode(body)
		if !ok {
			return
		}
		want, err := sdkMessages(t, string(body))
		if err != nil {
			t.Fatalf("decode(%q) = %+v, SDK: %v", body, got, err)
		}
		if diff := cmp.Diff(want, got, equalTimes, noNil); diff != "" {
			t.Fatalf("decode(%q) (-want +got)\n%s", body, diff)
		}
	})
}
