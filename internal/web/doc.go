// Package web serves a deployment as a page in a browser, for the person who started it.
//
// One loop reads the deployment for all tabs:
//
//	storage ──read──▶ feed ──state──▶ pages  (HTML, rendered on the server)
//	                   │
//	                   └──────next──▶ streams (server-sent events: the regions that changed)
//
// A page consists of regions. When the feed has a new state, each stream renders the regions
// of its page again and sends the regions whose HTML differs. The script in the browser merges them
// into the document; without the script a page is complete and does not change.
//
// The page belongs to its user. [Listen] accepts loopback addresses only. The address that is
// printed has a token that works once and becomes a cookie. The guard refuses requests with
// another Host, from another Origin, or without the cookie. Values from storage pass through
// package plaintext and the escaping of html/template, and the content security policy allows
// neither scripts nor styles within the HTML.
//
// With [Config].UserHeader the page is for a team behind a proxy that signs people in, on any address:
// there is no token, requests without the proxy's header are refused, and no method but GET is served.
//
// With [Config].AllowChanges pages have buttons:
//
//	button ──GET /change──▶ question, with a key ──POST /change──▶ change ──▶ /changed/N
//
// The question reads what the change concerns, and the change concerns nothing else: a job that
// appears meanwhile is left alone. A key works once. The form also has a token of the session.
// The commands ask with the same words (package actions). Without the flag the routes do not
// exist.
package web
