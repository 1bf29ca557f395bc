package storage

import (
	"slices"
	"strconv"
	"strings"
)

// headerOrder compares two lower-case header names.
type headerOrder func(a, b string) int

// headerOrders are the orders in which clients canonicalize x-ms- headers.
// Most sort by bytes. The blob SDK sorts as the service collates: hyphens
// count for nothing, and an underscore comes before digits and letters.
var headerOrders = []headerOrder{strings.Compare, collate}

var collation = strings.NewReplacer("-", "", "_", "!")

func collate(a, b string) int {
	if c := strings.Compare(collation.Replace(a), collation.Replace(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

// stringToSign is the text that a client signs with the shared key, in the
// form of service versions from 2015-02-21 on: method, eleven standard
// headers, the x-ms- headers, the resource.
func stringToSign(r *request, account string, order headerOrder) string {
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	date := r.Header.Get("Date")
	if r.Header.Get(headerDate) != "" {
		date = ""
	}
	return strings.Join([]string{
		r.Method,
		r.Header.Get("Content-Encoding"),
		r.Header.Get("Content-Language"),
		length,
		r.Header.Get("Content-MD5"),
		r.Header.Get("Content-Type"),
		date,
		r.Header.Get("If-Modified-Since"),
		r.Header.Get("If-Match"),
		r.Header.Get("If-None-Match"),
		r.Header.Get("If-Unmodified-Since"),
		r.Header.Get("Range"),
		canonicalHeaders(r, order),
		canonicalResource(r, account),
	}, "\n")
}

// canonicalHeaders lists the x-ms- headers, a line each.
func canonicalHeaders(r *request, order headerOrder) string {
	var names []string
	values := make(map[string]string)
	for key, v := range r.Header {
		name := strings.ToLower(key)
		if strings.HasPrefix(name, "x-ms-") {
			names = append(names, name)
			values[name] = strings.Join(v, ",")
		}
	}
	slices.SortFunc(names, order)
	lines := make([]string, len(names))
	for i, name := range names {
		lines[i] = name + ":" + values[name]
	}
	return strings.Join(lines, "\n")
}

// canonicalResource is the account, the path as it was sent (which, path
// style, begins with the account once more), and the query parameters.
func canonicalResource(r *request, account string) string {
	var b strings.Builder
	b.WriteString("/" + account + r.URL.EscapedPath())
	names := make([]string, 0, len(r.query))
	for name := range r.query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := slices.Sorted(slices.Values(r.query[name]))
		b.WriteString("\n" + strings.ToLower(name) + ":" + strings.Join(values, ","))
	}
	return b.String()
}
