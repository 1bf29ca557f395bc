// Package azure connects to a storage account: it chooses the credential, keeps
// connections open, and sets timeouts and retries of calls.
//
// There are three ways to sign in, in this order:
//
//   - a connection string, for emulators and for accounts that still allow keys;
//   - an account name with the client id of a managed identity: production;
//   - an account name alone: the developer's own sign-in (az login and the like).
//
// Only the second way requests a token from the metadata endpoint. The third never
// contacts it.
package azure
