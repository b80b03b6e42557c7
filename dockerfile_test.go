package repository_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// instruction is one instruction of a Dockerfile, continued lines joined.
type instruction struct{ name, args string }

// readDockerfile returns the instructions of each stage, the first of which is FROM. The file uses no heredocs and no
// comments within an instruction; BuildKit's parser, which would know them, is a hundred modules.
func readDockerfile(t *testing.T) (stages [][]instruction) {
	t.Helper()
	text, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "" || strings.HasPrefix(name, "#"):
		case name == "FROM":
			stages = append(stages, []instruction{{name, args}})
		default:
			stages[len(stages)-1] = append(stages[len(stages)-1], instruction{name, strings.Join(strings.Fields(args), " ")})
		}
	}
	return stages
}

func TestDockerfileImageIsStaticAndUnprivileged(t *testing.T) {
	stages := readDockerfile(t)
	build, image := stages[0], stages[len(stages)-1]
	compiles := slices.ContainsFunc(build, func(i instruction) bool {
		return i.name == "RUN" && strings.Contains(i.args, "CGO_ENABLED=0 ") && strings.Contains(i.args, " go build -trimpath ")
	})
	if !compiles {
		t.Errorf("no `CGO_ENABLED=0 … go build -trimpath` in %v: a dynamic binary does not start on an empty image", build)
	}
	want := []instruction{
		{"FROM", "scratch"},
		{"COPY", "--from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/"},
		{"COPY", "--from=build /out/projector /projector"},
		{"USER", "65532:65532"},
		{"EXPOSE", "8080"},
		{"ENTRYPOINT", `["/projector"]`},
		{"CMD", `["run"]`},
	}
	if diff := cmp.Diff(want, image, cmp.AllowUnexported(instruction{})); diff != "" {
		t.Errorf("the image: -want +got:\n%s", diff)
	}
	for _, name := range []string{"projector", "schema"} {
		if got := loadCompose(t).Services[name].User; got != "65532:65532" {
			t.Errorf("docker-compose.yml runs %s as %q, the Dockerfile as 65532:65532", name, got)
		}
	}
}

func TestDockerfileBuildsWithTheModulesGo(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	module := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(text)
	if module == nil {
		t.Fatal("go.mod has no go line")
	}
	if from := readDockerfile(t)[0][0].args; !strings.Contains(from, " golang:"+string(module[1])+" ") {
		t.Errorf("FROM %s, but go.mod asks for Go %s", from, module[1])
	}
}

// The context of the build is what .dockerignore lets in: a folder that the binary comes to import must be added there.
func TestDockerignoreLetsInWhatIsBuilt(t *testing.T) {
	text, err := os.ReadFile(".dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if folder, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			in[folder] = true
		}
	}
	const module = "github.com/chprojector/projector/"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/projector").Output()
	if err != nil {
		t.Fatal(err)
	}
	need := map[string]bool{"go.mod": true, "go.sum": true}
	for pkg := range strings.Lines(string(out)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(pkg), module); ok {
			folder, _, _ := strings.Cut(path, "/")
			need[folder] = true
		}
	}
	if diff := cmp.Diff(need, in); diff != "" {
		t.Errorf("what is let in: -want +got:\n%s", diff)
	}
}
