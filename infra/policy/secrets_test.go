package policy

import (
	"regexp"
	"slices"
	"strings"
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

// checkStorage: no keys, nothing public, a firewall unless somebody switches it off, and no second copy of data that is written
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
				if got, want := text(at(properties, "networkAcls", "defaultAction")), "firewall ? 'Deny' : 'Allow'"; got != want {
					tell(path, r.Line, "the firewall does %s, want %s", got, want)
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
		for _, p := range f.Params {
			if p.Name == "storageFirewall" && slices.Contains(entries, path) && p.Default != true {
				tell(path, p.Line, "storageFirewall is %s, want true", text(p.Default))
			}
		}
	}
}

// secretWords are functions that return secrets and properties that hold them.
var secretWords = regexp.MustCompile(`(?i)\b(list\w*(keys|sas|secrets?)|sharedkeys|regeneratekey|getsecret|protectedsettings\w*|` +
	`customdata|connectionstring|accountkey|sastoken)\b`)

// withPassword are the parameters that contain that password besides other values.
var withPassword = []string{"modules/spot-plus.bicep model"}

// checkSecrets: nothing asks for a key, and nothing takes or gives one.
func checkSecrets(d deployment, tell report) {
	for path, f := range d {
		for n, line := range strings.Split(f.source, "\n") {
			code, _, _ := strings.Cut(line, "//")
			if word := secretWords.FindString(code); word != "" && !strings.Contains(code, "@description(") {
				tell(path, n+1, "%s is, or leads to, a secret", word)
			}
		}
		for _, p := range f.Params {
			secure := slices.ContainsFunc(p.Decorators, func(d string) bool { return strings.HasPrefix(d, "@secure") })
			switch password := p.Name == "adminPassword"; {
			case secure && !password && !slices.Contains(withPassword, path+" "+p.Name):
				tell(path, p.Line, "parameter %s is a secret; there is none to be handed in", p.Name)
			case password && !secure && !strings.HasPrefix(text(p.Value), "readEnvironmentVariable("):
				tell(path, p.Line, "parameter %s has no @secure(), or is written out: Azure, or the repository, would keep it", p.Name)
			}
		}
	}
}
