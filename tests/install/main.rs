//! Installing and uninstalling the module: `make run`, `make install`, the configuration, the data, Kubernetes, an upgrade, and that docs/install.md
//! describes all of it correctly. `make deb-test` tests the package and the image in their own Debian.

mod configuration;
mod data;
mod kubernetes;
mod make_install;
mod make_run;
mod manifest;
mod own_server;
mod page;
mod upgrade;
