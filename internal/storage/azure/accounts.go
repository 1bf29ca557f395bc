package azure

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/storage/outage"
)

// More are the further accounts of a deployment that has several.
type More struct {
	// Accounts are their names. They are reached with the identity of the first, and at
	// endpoints that differ from the first's in the name alone.
	Accounts []string

	// ConnectionStrings are their connection strings, where the first has one.
	ConnectionStrings []string
}

// ConnectAll creates the clients of all accounts of a deployment, the first of them as c
// says. It makes no call.
func ConnectAll(c AccountConfig, more More) ([]*Account, error) {
	first, err := Connect(c)
	if err != nil {
		return nil, err
	}
	accounts := []*Account{first}
	configs, err := more.configs(c)
	if err != nil {
		return nil, err
	}
	names := []string{first.name}
	for _, config := range configs {
		account, err := Connect(config.named())
		if err != nil {
			return nil, fmt.Errorf("further account: %w", err)
		}
		if slices.Contains(names, account.name) {
			return nil, fmt.Errorf("storage account %s is given twice: give each account of the deployment once, in their order", account.name)
		}
		names, accounts = append(names, account.name), append(accounts, account)
	}
	return accounts, nil
}

// configs returns how to connect to the further accounts.
func (m More) configs(first AccountConfig) ([]AccountConfig, error) {
	switch {
	case len(m.Accounts) == 0 && len(m.ConnectionStrings) == 0:
		return nil, nil
	case first.ConnectionString != "" && len(m.Accounts) > 0:
		return nil, errors.New("the first account has a connection string, so that further ones need theirs: a name can be signed in to with " +
			"an identity only")
	case first.ConnectionString == "" && len(m.ConnectionStrings) > 0:
		return nil, errors.New("the first account has no connection string, so that further ones are given by their names")
	case first.ConnectionString == "" && !validAccount(first.Account), first.ConnectionString != "" && accountIn(first.ConnectionString) == "":
		return nil, errors.New("with several storage accounts the first needs its name too, since jobs are spread over accounts by their names")
	}
	var configs []AccountConfig
	for _, s := range m.ConnectionStrings {
		c := first
		if c.ConnectionString = s; !validAccount(accountIn(s)) {
			return nil, errors.New("the connection string of a further account has no AccountName")
		}
		configs = append(configs, c)
	}
	for _, name := range m.Accounts {
		c, err := first.of(name)
		if err != nil {
			return nil, err
		}
		configs = append(configs, c)
	}
	return configs, nil
}

// of returns how to connect to another account in the same way.
func (c AccountConfig) of(name string) (other AccountConfig, err error) {
	if !validAccount(name) {
		return AccountConfig{}, fmt.Errorf("storage account %q: a name has 3 to 24 of a-z and 0-9, without the address behind it", name)
	}
	other = c
	other.Account = name
	if other.BlobEndpoint, err = endpointOf(c.BlobEndpoint, "blob", c.Account, name); err != nil {
		return AccountConfig{}, err
	}
	if other.QueueEndpoint, err = endpointOf(c.QueueEndpoint, "queue", c.Account, name); err != nil {
		return AccountConfig{}, err
	}
	return other, nil
}

// endpointOf returns the endpoint of another account, by the first account's endpoint: it
// has the account's name at the start of the host, or in an emulator as the path.
func endpointOf(endpoint, kind, first, other string) (string, error) {
	if endpoint == "" {
		return "", nil
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", fmt.Errorf("--%s-endpoint is not a URL", kind)
	case strings.HasPrefix(u.Host, first+"."):
		u.Host = other + strings.TrimPrefix(u.Host, first)
	case strings.Trim(u.Path, "/") == first:
		u.Path = "/" + other
	default:
		return "", fmt.Errorf("--%s-endpoint does not begin with the account's name, %s: then the addresses of further accounts are not known",
			kind, first)
	}
	return u.String(), nil
}

// named returns a configuration that reports calls with the account's name.
func (c AccountConfig) named() AccountConfig {
	name := c.Account
	if c.ConnectionString != "" {
		name = accountIn(c.ConnectionString)
	}
	if onCall := c.OnCall; onCall != nil {
		c.OnCall = func(call Call) {
			call.Account = name
			if call.Queue != "" {
				call.Queue = name + "/" + call.Queue
			}
			onCall(call)
		}
	}
	if onEnd := c.OnEnd; onEnd != nil {
		c.OnEnd = func(call outage.Call) {
			call.Account = name
			onEnd(call)
		}
	}
	return c
}

// accountIn returns the name of the account in a connection string.
func accountIn(connectionString string) string {
	for part := range strings.SplitSeq(connectionString, ";") {
		if key, value, _ := strings.Cut(part, "="); strings.EqualFold(strings.TrimSpace(key), "AccountName") {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
