// The user of this page, and what its role allows.
import {Store} from "./live.js";

export const ROLES = ["agent", "viewer", "operator", "editor", "admin"];

/** The answer of /v1/session; null before it, and after the session is over. */
export const session = new Store(null);

/** Whether the user has at least that role. */
export const may = (role) => ROLES.indexOf(session.value?.role) >= ROLES.indexOf(role);
