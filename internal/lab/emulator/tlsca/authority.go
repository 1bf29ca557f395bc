package tlsca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// Validity of every certificate: back far enough for a client whose clock is
// slow, and on for longer than any process here lives.
const (
	validBefore = time.Hour
	validAfter  = 30 * 24 * time.Hour
)

// Authority is a certificate authority in memory. It is safe for concurrent
// use.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New makes an authority with a fresh key. Its certificates are valid for loopback
// addresses, localhost, and the given domains, for tests in a network of their own.
func New(domains ...string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	template := newTemplate("spotworker emulator CA")
	template.IsCA = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	template.MaxPathLenZero = true
	template.PermittedDNSDomainsCritical = true
	template.PermittedDNSDomains = append([]string{"localhost"}, domains...)
	template.PermittedIPRanges = []*net.IPNet{
		{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)},
		{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	return &Authority{certificate: certificate, key: key}, nil
}

// ServerConfig returns the configuration of a server that answers as
// localhost, 127.0.0.1, ::1 and under the given names, with a certificate of its
// own.
func (a *Authority) ServerConfig(names ...string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a server's key: %w", err)
	}
	template := newTemplate("localhost")
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = append([]string{"localhost"}, names...)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("make a server's certificate: %w", err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}, nil
}

// ClientConfig returns the configuration of a client that trusts this
// authority and no other.
func (a *Authority) ClientConfig() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// WriteFile writes the authority's certificate to a file, for clients in other
// processes.
func (a *Authority) WriteFile(name string) error {
	if err := os.WriteFile(name, a.PEM(), 0o644); err != nil { //nolint:gosec // a certificate is public
		return fmt.Errorf("write the authority's certificate: %w", err)
	}
	return nil
}

// WriteServer writes the certificate and the key of a server that answers as
// with [Authority.ServerConfig] to two files, for a server in another process.
func (a *Authority) WriteServer(certificate, key string, names ...string) error {
	config, err := a.ServerConfig(names...)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(config.Certificates[0].PrivateKey)
	if err != nil {
		return fmt.Errorf("encode a server's key: %w", err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: config.Certificates[0].Certificate[0]})
	if err := os.WriteFile(certificate, chain, 0o644); err != nil { //nolint:gosec // a certificate is public
		return fmt.Errorf("write a server's certificate: %w", err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write a server's key: %w", err)
	}
	return nil
}

func newTemplate(name string) *x509.Certificate {
	serial := new(big.Int).SetBytes([]byte(rand.Text())) // 26 characters; a serial number has 20 bytes at most
	now := time.Now()
	return &x509.Certificate{
		SerialNumber:          serial.Rsh(serial, 8*6+1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-validBefore),
		NotAfter:              now.Add(validAfter),
		BasicConstraintsValid: true,
	}
}
