package remote

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ojsengine/ojs"
)

// Extension is the name, in a server's manifest, of the members that the binding leaves
// out and that this client uses. Servers of this module have it: their documentation
// lists the members. Another server would ignore such a member, so the client asks for
// the manifest first.
const Extension = "urn:ojsengine:remote:1"

// extended reports whether the server has the Extension. It asks until the server has
// answered once.
func (c *Client) extended(ctx context.Context) (bool, error) {
	if has := c.hasExtension.Load(); has != nil {
		return *has, nil
	}
	var manifest struct {
		Extensions []string `json:"extensions"`
	}
	if err := c.do(ctx, &request{method: "GET", path: manifestPath, out: &manifest}); err != nil {
		return false, err
	}
	has := slices.Contains(manifest.Extensions, Extension)
	c.hasExtension.Store(&has)
	return has, nil
}

// manifestPath is the only path without the root.
const manifestPath = "/ojs/manifest"

// extend refuses members that the server would ignore.
func (c *Client) extend(ctx context.Context, members []string) error {
	if len(members) == 0 {
		return nil
	}
	has, err := c.extended(ctx)
	if err != nil || has {
		return err
	}
	return fmt.Errorf("%w: %s: the server does not have the extension %s", ojs.ErrUnsupported,
		strings.Join(members, ", "), Extension)
}
