package process

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// repositoryName is the placeholder of a folder with the model in the layout of Triton's model
// repository.
const repositoryName = "{repository}"

// repositoryModel is the name of the model there, unless the definition has one.
const repositoryModel = "model"

// makeRepository creates a folder with the files of a model in the layout of Triton's model repository,
// beside the folder that has them: NAME/1/model.EXTENSION for the main file, NAME/config.pbtxt for the
// model's configuration if there is one, and NAME/1/FILE for other files. They are symbolic links.
func (s *Server) makeRepository(source engine.Source) (string, error) {
	root := filepath.Join(filepath.Dir(source.Folder), "repository")
	model := filepath.Join(root, cmp.Or(s.Model, repositoryModel))
	entries, err := os.ReadDir(source.Folder)
	if err == nil {
		err = os.RemoveAll(root)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(model, "1"), 0o755) //nolint:gosec // the server may be another user
	}
	for _, entry := range entries {
		if err != nil {
			break
		}
		from, to := filepath.Join(source.Folder, entry.Name()), filepath.Join(model, "1", entry.Name())
		switch {
		case entry.Name() == filepath.Base(source.Path):
			to = filepath.Join(model, "1", "model"+filepath.Ext(source.Path))
		case entry.Name() == "config.pbtxt":
			to = filepath.Join(model, entry.Name())
		}
		err = os.Symlink(from, to)
	}
	if err != nil {
		return "", outboard.Errorf(outboard.Other, "model repository", "%w", err)
	}
	return root, nil
}
