package policy

import (
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// wantStorage has the required properties of the storage account.
var wantStorage = map[string]value{
	"allowSharedKeyAccess":         false,
	"allowBlobPublicAccess":        false,
	"allowCrossTenantReplication":  false,
	"defaultToOAuthAuthentication": true,
	"isLocalUserEnabled":           false,
	"supportsHttpsTrafficOnly":     true,
	"minimumTlsVersion":            "TLS1_2",
}

// wantNetworkRules is who gets to the account: the VMs, who is named, and the
// gallery.
var wantNetworkRules = map[string]string{
	"defaultAction":       "firewall ? 'Deny' : 'Allow'",
	"bypass":              "'AzureServices'",
	"virtualNetworkRules": "[for id in subnetIds: { id: id }]",
	"ipRules":             "[for address in addresses: { value: address }]",
}

// checkStorageAccess: the firewall is on unless somebody switches it off, the
// subnet has the endpoint that the firewall knows it by, and writes are logged.
func checkStorageAccess(d deployment, tell report) {
	for _, entry := range entries {
		for _, p := range d[entry].Params {
			if (p.Name == "storageFirewall" || p.Name == "logStorage") && p.Default != true {
				tell(entry, p.Line, "%s is %s, want true", p.Name, text(p.Default))
			}
		}
		for _, m := range d[entry].Modules {
			for _, name := range []string{"storageFirewall", "operatorAddresses", "otherSubnets", "logStorage"} {
				if got := text(at(m.Body, "params", name)); m.Symbol == "foundation" && got != name {
					tell(entry, m.Line, "%s of the foundation is %q, want the parameter", name, got)
				}
			}
		}
	}
	for _, m := range d["modules/foundation.bicep"].Modules {
		want := map[string]map[string]string{
			"storage": {
				"firewall": "storageFirewall", "addresses": "operatorAddresses",
				"subnetIds": "concat([network.outputs.subnetId], otherSubnets)",
			},
			"storageLog": {"accountName": "accountName", "workspaceId": "log!.outputs.workspaceId"},
			"network":    {"remoteStorage": "!ownsAccount"},
		}[m.Symbol]
		for name, w := range want {
			if got := text(at(m.Body, "params", name)); got != w {
				tell("modules/foundation.bicep", m.Line, "%s of %s is %q, want %s", name, m.Symbol, got, w)
			}
		}
		if m.Symbol == "storageLog" && m.Condition != "collects && logStorage && ownsAccount" {
			tell("modules/foundation.bicep", m.Line, "writes to storage are logged if %s", m.Condition)
		}
	}
	needWords(d, "modules/network.bicep", tell, "serviceEndpoints: [{ service: remoteStorage ? 'Microsoft.Storage.Global' : "+
		"'Microsoft.Storage' }]")
	logged := 0
	for _, r := range d["modules/storage-log.bicep"].Resources {
		if r.Existing {
			continue
		}
		logged++
		want := []any{
			map[string]any{"category": "StorageWrite", "enabled": true}, map[string]any{"category": "StorageDelete", "enabled": true},
		}
		if diff := cmp.Diff(want, at(r.Body, "properties", "logs")); diff != "" ||
			text(at(r.Body, "properties", "workspaceId")) != "workspaceId" {
			tell("modules/storage-log.bicep", r.Line, "what is logged (-want +got):\n%s", diff)
		}
	}
	if logged != 2 {
		tell("modules/storage-log.bicep", 0, "%d services are logged, want blobs and queues", logged)
	}
}

// checkStorage: no keys, nothing public, and no second copy of data that is written
// over and over.
func checkStorage(d deployment, tell report) {
	for path, f := range d {
		for _, r := range f.Resources {
			if r.Existing {
				continue
			}
			properties := at(r.Body, "properties")
			switch r.Type {
			case "Microsoft.Storage/storageAccounts":
				for key, want := range wantStorage {
					if got := at(properties, key); got != want {
						tell(path, r.Line, "%s is %s, want %v", key, text(got), want)
					}
				}
				for key, want := range wantNetworkRules {
					if got := text(at(properties, "networkAcls", key)); got != want {
						tell(path, r.Line, "%s of the firewall is %s, want %s", key, got, want)
					}
				}
			case "Microsoft.Storage/storageAccounts/blobServices":
				for _, key := range []string{"deleteRetentionPolicy", "containerDeleteRetentionPolicy", "changeFeed"} {
					if at(properties, key, "enabled") != false {
						tell(path, r.Line, "%s is not switched off: it keeps a copy or an event of every save", key)
					}
				}
				if at(properties, "isVersioningEnabled") != false {
					tell(path, r.Line, "versioning is not switched off: it keeps a copy of every save")
				}
			case "Microsoft.Storage/storageAccounts/blobServices/containers":
				if at(properties, "publicAccess") != "None" {
					tell(path, r.Line, "public access is %s, want None", text(at(properties, "publicAccess")))
				}
			}
		}
	}
}

// secretWords are functions that return secrets and properties that hold them.
var secretWords = regexp.MustCompile(`(?i)\b(list\w*(keys|sas|secrets?)|sharedkeys|regeneratekey|getsecret|protectedsettings\w*|` +
	`adminpassword|customdata|connectionstring|accountkey|sastoken)\b`)

// passwordLines are where the one secret may stand that Azure insists on: the
// password of VMs that run Windows. It is handed down and checked for its length.
var passwordLines = []*regexp.Regexp{
	regexp.MustCompile(`^param adminPassword string( = '')?$`),
	regexp.MustCompile(`^ +adminPassword: adminPassword$`),
	regexp.MustCompile(`^ +osProfile: operatingSystem == 'Windows' \? union\(vm\.windowsProfile\('[a-z]+', adminUsername\), ` +
		`\{ adminPassword: adminPassword \}\) : vm\.osProfile\(`),
	regexp.MustCompile(`^var windows = operatingSystem == 'Windows' && length\(adminPassword\) < 12$`),
	regexp.MustCompile(`^  \? fail\('Windows needs adminPassword, [^$]*'\)$`),
	regexp.MustCompile(`^param adminPassword = readEnvironmentVariable\('ADMIN_PASSWORD', ''\)$`),
}

// withPassword are the parameters that contain that password besides other values.
var withPassword = []string{"modules/spot-plus.bicep model"}

// isPassword reports whether a line has that password where it may stand.
func isPassword(line string) bool {
	return slices.ContainsFunc(passwordLines, func(form *regexp.Regexp) bool { return form.MatchString(line) })
}

// checkSecrets: nothing asks for a key, and nothing takes or gives one.
func checkSecrets(d deployment, tell report) {
	for path, f := range d {
		for n, line := range strings.Split(f.source, "\n") {
			code, _, _ := strings.Cut(line, "//")
			if word := secretWords.FindString(code); word != "" && !strings.Contains(code, "@description(") && !isPassword(line) {
				tell(path, n+1, "%s is, or leads to, a secret", word)
			}
		}
		for _, p := range f.Params {
			secure := slices.ContainsFunc(p.Decorators, func(d string) bool { return strings.HasPrefix(d, "@secure") })
			switch password := p.Name == "adminPassword"; {
			case secure && !password && !slices.Contains(withPassword, path+" "+p.Name):
				tell(path, p.Line, "parameter %s is a secret; there is none to be handed in", p.Name)
			case password && !secure && !strings.HasSuffix(path, ".bicepparam"):
				tell(path, p.Line, "parameter %s has no @secure(): Azure would keep it in the deployment's history", p.Name)
			}
		}
	}
}

// needWords tells of words that a file must have and does not.
func needWords(d deployment, path string, tell report, words ...string) {
	for _, word := range words {
		if !strings.Contains(d[path].source, word) {
			tell(path, 0, "%q is not there", word)
		}
	}
}
