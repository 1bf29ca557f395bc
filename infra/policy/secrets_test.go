package policy

import (
	"regexp"
	"strings"
)

// wantStorage is what the storage account must say.
var wantStorage = map[string]value{
	"allowSharedKeyAccess":         false,
	"allowBlobPublicAccess":        false,
	"allowCrossTenantReplication":  false,
	"defaultToOAuthAuthentication": true,
	"isLocalUserEnabled":           false,
	"supportsHttpsTrafficOnly":     true,
	"minimumTlsVersion":            "TLS1_2",
}

// checkStorage: no keys, nothing public, and no second copy of what is written
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
var secretWords = regexp.MustCompile(`(?i)\b(list\w*(keys|sas|secrets?)|sharedkeys|regeneratekey|getsecret|protectedsettings\w*|adminpassword|customdata|connectionstring|accountkey|sastoken)\b`)

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
			for _, decorator := range p.Decorators {
				if strings.HasPrefix(decorator, "@secure") {
					tell(path, p.Line, "parameter %s is a secret; there is none to be handed in", p.Name)
				}
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
