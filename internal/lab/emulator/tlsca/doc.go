// Package tlsca makes a certificate authority for servers on this machine, so
// that clients which insist on TLS, as everything does that sends a token, can
// talk to an emulator without being told to skip verification.
//
// The authority's key never leaves the process and its certificate is
// constrained to loopback names unless others are asked for, so that trusting its file endangers nothing
// beyond this machine, and nothing at all once the process has ended:
//
//	SSL_CERT_FILE=ca.pem       Go programs
//	REQUESTS_CA_BUNDLE=ca.pem  az and other Python programs
package tlsca
