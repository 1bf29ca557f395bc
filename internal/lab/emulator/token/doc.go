// Package token makes and checks the access tokens of the emulated Azure: JSON
// web tokens with the claims that a managed identity's token has ("Access token
// claims reference" of the Microsoft identity platform, version 1.0).
//
// The identity endpoint issues them and storage checks them. Both are in one
// process and share an Issuer, so one secret signs and verifies (HS256); Entra
// signs with a key of its own and publishes the other half, which nothing here
// would read.
package token
