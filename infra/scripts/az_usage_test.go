package scripts

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// usage has the options of each command, as az --help lists them: the required options, and
// behind the bar further options of the scripts. Any command may have --query and --output.
var usage = map[string]string{
	"account show": "", "version": "", "bicep version": "", "provider list": "", "ad signed-in-user show": "",
	"group exists": "--name", "group show": "--name", "group create": "--name --location",
	"vm list-skus": "--location --resource-type | --all", "vm list-usage": "--location",
	"vm list": "--resource-group | --show-details", "vm simulate-eviction": "--resource-group --name",
	"vmss list": " | --resource-group", "vmss scale": "--resource-group --name --new-capacity",
	"monitor autoscale list": "--resource-group", "monitor autoscale delete": "--resource-group --name",
	"network vnet subnet show":         "--resource-group --vnet-name --name",
	"storage account list":             "--resource-group",
	"storage account network-rule add": "--resource-group --account-name --subnet",
	"deployment group list":            "--resource-group", "deployment group show": "--resource-group --name",
	"deployment group create":  "--resource-group --name --parameters",
	"deployment group what-if": "--resource-group --name --parameters",
	"storage account show":     "--resource-group --name",
	"rest":                     "--method --url",
	"resource delete":          "--resource-group --resource-type --name",
	"storage blob list":        "--auth-mode --account-name --container-name | --prefix --include --num-results",
	"storage blob upload":      "--auth-mode --account-name --container-name --name --file --metadata --overwrite",
	"role assignment list":     "--scope", "role assignment delete": "--ids",
}

// formats are the forms of output in which a script or a person reads.
var formats = []string{"tsv", "none", "table"}

// refused is why Azure or az would refuse a call: an option that the command does not know or
// lacks, or a resource that does not exist. The notes "resourcegroup" and "prefix" have the names
// of the deployment.
func (c azCall) refused() error {
	needs, others, _ := strings.Cut(usage[c.name], "|")
	for option := range strings.FieldsSeq(needs) {
		if c.options[option] == "" {
			return fmt.Errorf("the following arguments are required: %s", option)
		}
	}
	group, prefix := cmp.Or(c.read("resourcegroup"), "spotworker"), cmp.Or(c.read("prefix"), "spotworker")
	containers := []string{prefix + "-packages", prefix + "-workers"}
	for _, option := range slices.Sorted(maps.Keys(c.options)) {
		value, known := c.options[option], []string(nil)
		switch option {
		case "--query":
			continue
		case "--output":
			known = formats
		case "--resource-group":
			known = []string{group, "firstregion", "firstregion-northeurope", "stranger"}
		case "--name":
			known = c.namesOf(group, prefix)
		case "--account-name":
			known = []string{cmp.Or(c.read("account"), "someaccount")}
		case "--container-name":
			known = containers
		case "--auth-mode":
			known = []string{"login"} // the account has no keys
		case "--location":
			known = []string{cmp.Or(c.read("region"), value)}
			if err := os.WriteFile(c.path("region"), []byte(value), 0o600); err != nil {
				return err
			}
		}
		if !slices.Contains(strings.Fields(needs+others), option) && option != "--output" {
			return fmt.Errorf("unrecognized arguments: %s", option)
		}
		if known != nil && !slices.Contains(known, value) {
			return fmt.Errorf("(ResourceNotFound) %s of %s is %q, and there is only %q", option, c.name, value, known)
		}
	}
	return nil
}

// namesOf are the names that the resource of a command may have, nil for any.
func (c azCall) namesOf(group, prefix string) []string {
	switch {
	case strings.HasPrefix(c.name, "group "):
		return []string{group}
	case strings.HasPrefix(c.name, "deployment group "):
		return []string{prefix + "-deploy"}
	}
	return nil
}

// deploy answers a deployment, or what-if. Azure takes it only if the resource group is there,
// and each parameter once. Its parameter file reads variables without which it deploys nothing
// useful. The note "environment" gets the numbers of VMs.
func deploy(c azCall) (any, error) {
	file, rest, _ := strings.Cut(c.options["--parameters"], " ")
	if info, err := os.Stat(file); err != nil || info.IsDir() {
		return nil, fmt.Errorf("unable to parse parameter: %s", file)
	}
	given := map[string]string{}
	for word := range strings.FieldsSeq(rest) {
		name, value, found := strings.Cut(word, "=")
		if _, twice := given[name]; !found || value == "" || twice {
			return nil, fmt.Errorf("unable to parse parameter: %s", word)
		}
		given[name] = value
	}
	for name, want := range map[string]string{
		"location": c.read("region"), "prefix": cmp.Or(c.read("prefix"), "spotworker"), "stage": given["stage"],
		"operatorKind": given["operatorKind"],
	} {
		if given[name] == "" || want != "" && given[name] != want {
			return nil, fmt.Errorf("(InvalidTemplate) parameter %s is %q, want %q", name, given[name], want)
		}
	}
	for _, name := range []string{"OPERATOR_ID", "SSH_PUBLIC_KEY", "OPERATOR_ADDRESSES", "APPLICATION_VERSION"} {
		if os.Getenv(name) == "" {
			return nil, fmt.Errorf("(InvalidTemplate) the parameter file reads %s, which is empty", name)
		}
	}
	c.add("environment", fmt.Sprintf("%s %s: Spot %s, on-demand %s, operator %s, key %s\n", c.name, given["stage"],
		os.Getenv("CAPACITY"), os.Getenv("ONDEMAND_CAPACITY"), os.Getenv("OPERATOR_ID"), os.Getenv("SSH_PUBLIC_KEY")))
	return made(c)
}

// digestOf is the digest of a file as the packages' metadata has it.
func digestOf(path string) (string, error) {
	content, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(content)), err
}
