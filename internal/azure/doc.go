// Package azure is the one place that knows how to connect: which credentials
// are used, which connections are kept, how often a call is repeated.
//
// Three ways to an account, in this order:
//
//   - a connection string, for emulators and for accounts that still allow keys;
//   - an account name with the client id of a managed identity: production;
//   - an account name alone: the developer's own sign-in (az login and the like).
//
// The metadata endpoint is asked for a token only in the second way. The third
// never probes it.
package azure
