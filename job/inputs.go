package job

// Input names files that a job needs: one blob, all blobs with a prefix, all blobs that a
// manifest lists, or a whole container. The worker fetches them before it calls the handler, into
// a folder of the job ([Job.Inputs], [Job.InputFolder]).
type Input struct {
	// Account is the blob endpoint of another storage account, such as
	// https://shared.blob.core.windows.net, which the workers must allow
	// (--input-container). Default: the account of the jobs.
	Account string `json:"account,omitempty"`

	// Container is the container's name.
	Container string `json:"container"`

	// Blob is the name of one blob, Prefix the common start of several blobs' names, and
	// Manifest the name of a blob with an Input as JSON on each line. Give at most one;
	// none means all blobs of the container.
	Blob     string `json:"blob,omitempty"`
	Prefix   string `json:"prefix,omitempty"`
	Manifest string `json:"manifest,omitempty"`

	// ETag is the version of Blob or Manifest that the job needs, quotes included. If the
	// blob has another one, the job is dead-lettered. Default: the version that the first
	// delivery finds; when a later delivery that has a checkpoint finds another version,
	// the job is dead-lettered too.
	ETag string `json:"etag,omitempty"`

	// To is the path in the folder of inputs, relative and with slashes: of the file, or
	// of a folder for the files of a prefix. Default: the last part of the blob's name,
	// or the folder itself.
	To string `json:"to,omitempty"`
}

// InputFile is one of a job's input files.
type InputFile struct {
	// Name is its path in the folder of inputs, with slashes.
	Name string

	// File is its path on this machine. The file must not be changed, and is there until
	// the job's cleanups have run.
	File string

	// Size is its length in bytes.
	Size int64

	// Container and Blob name the blob that it is a copy of, ETag its version, and Account
	// its account if that is another one.
	Account, Container, Blob, ETag string
}

// Inputs returns the job's input files in the order of their names; none for a job
// without inputs. The handler must not change the slice.
func (j *Job) Inputs() []InputFile { return j.inputs }

// InputFolder returns the path of the folder with the input files, for [os.DirFS] or a
// program; empty for a job without inputs. Nothing in it may be changed.
func (j *Job) InputFolder() string { return j.inputFolder }
