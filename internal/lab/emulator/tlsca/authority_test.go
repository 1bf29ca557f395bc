package tlsca

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := New()
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return a
}

func serverConfig(t *testing.T, a *Authority) *tls.Config {
	t.Helper()
	config, err := a.ServerConfig()
	if err != nil {
		t.Fatalf("ServerConfig: %v", err)
	}
	return config
}

// handshake connects a client that expects the given name to a server.
func handshake(t *testing.T, server, client *tls.Config, name string) error {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conn, err := listener.Accept(); err == nil {
			_, _ = conn.Read(make([]byte, 1)) // until the client has said what went wrong
			_ = conn.Close()
		}
	}()
	config := client.Clone()
	config.ServerName = name
	conn, err := tls.Dial("tcp", listener.Addr().String(), config)
	if err == nil {
		_ = conn.Close()
	}
	_ = listener.Close()
	<-done
	return err
}

func TestServerAnswersAsThisMachineOnly(t *testing.T) {
	a := newAuthority(t)
	server := serverConfig(t, a)
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		if err := handshake(t, server, a.ClientConfig(), name); err != nil {
			t.Errorf("handshake with %s: %v", name, err)
		}
	}
	for _, name := range []string{"127.0.0.2", "example.com", "account.blob.core.windows.net"} {
		if err := handshake(t, server, a.ClientConfig(), name); err == nil {
			t.Errorf("handshake with %s succeeded, want a refusal", name)
		}
	}
}

// A client that trusts the file must not trust it for other names.
func TestAuthorityCannotSpeakForOtherMachines(t *testing.T) {
	a := newAuthority(t)
	if !a.certificate.PermittedDNSDomainsCritical {
		t.Errorf("the name constraints are not critical, want clients that do not know them to refuse")
	}
	key, ok := serverConfig(t, a).Certificates[0].PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("the server's key is no ECDSA key")
	}
	for _, forged := range []struct {
		name string
		ip   net.IP
	}{{name: "account.blob.core.windows.net"}, {ip: net.IPv4(192, 0, 2, 1)}} {
		template := newTemplate("forged")
		if forged.name != "" {
			template.DNSNames = []string{forged.name}
		} else {
			template.IPAddresses = []net.IP{forged.ip}
			forged.name = forged.ip.String()
		}
		der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
		if err != nil {
			t.Fatalf("CreateCertificate: %v", err)
		}
		server := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
		if err := handshake(t, server, a.ClientConfig(), forged.name); err == nil {
			t.Errorf("handshake with a certificate for %s succeeded, want it refused by the name constraints", forged.name)
		}
	}
}

func TestServerUnderAName(t *testing.T) {
	a, err := New("blob.example")
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	folder := t.TempDir()
	certificate, key := filepath.Join(folder, "server.pem"), filepath.Join(folder, "server.key")
	if err := a.WriteServer(certificate, key, "account.blob.example", "account.queue.example"); err != nil {
		t.Fatalf("WriteServer: %v", err)
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatalf("the two files are no pair: %v", err)
	}
	if info, err := os.Stat(key); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the key's file has mode %v, %v, want it for its owner alone", info.Mode(), err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{pair}}
	if err := handshake(t, server, a.ClientConfig(), "account.blob.example"); err == nil {
		t.Error("handshake succeeded although the certificate names a domain that the authority must not speak for")
	}
	if err := a.WriteServer(certificate, key, "account.blob.example"); err != nil {
		t.Fatalf("WriteServer: %v", err)
	}
	if pair, err = tls.LoadX509KeyPair(certificate, key); err != nil {
		t.Fatal(err)
	}
	server = &tls.Config{Certificates: []tls.Certificate{pair}}
	if err := handshake(t, server, a.ClientConfig(), "account.blob.example"); err != nil {
		t.Errorf("handshake under the name that was asked for: %v", err)
	}
	if err := a.WriteServer(filepath.Join(certificate, "below"), key); err == nil {
		t.Error("WriteServer below a file succeeded, want an error")
	}
}
