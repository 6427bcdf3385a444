package client

// EndRefusal has the time be up for which streams are not tried.
func (c *Client) EndRefusal() { c.refused.Store(1) }
