"""Which member a person at an identity provider is, and with which role."""

from __future__ import annotations

from retinue.core.errors import UsageError
from retinue.teams.members import MemberStore, NewMember, TeamMember
from retinue.teams.provider import ProviderIdentity, SignInRefused
from retinue.teams.roles import TeamRole, role_of_groups
from retinue.teams.settings import IdentityProviderSettings


def admit_identity(store: MemberStore, identity: ProviderIdentity, settings: IdentityProviderSettings) -> TeamMember:
    """Return the member that a person is, created now if the groups, the default role or an invitation allow it.

    Raises `SignInRefused` for everybody else.
    """
    member = store.find_identity(identity.issuer, identity.subject) or _link(store, identity)
    if member is None:
        return _create(store, identity, settings)
    return follow_groups(store, member, identity, settings)


def follow_groups(
    store: MemberStore, member: TeamMember, identity: ProviderIdentity, settings: IdentityProviderSettings
) -> TeamMember:
    """Give a member the role of the groups, if groups decide; raises `SignInRefused` if they give none."""
    if not member.is_active:
        raise SignInRefused("This member is deactivated. Ask an owner of the team.")
    if not settings.roles:
        return member
    role = role_of_groups(identity.groups, settings.roles, settings.default_role)
    if role is None:
        raise SignInRefused("Your groups give you no role in this team. Ask an owner of the team.")
    if role is member.role:
        return member
    try:
        return store.set_role(member.id, role, TeamRole.OWNER)
    except UsageError:  # the last owner stays one, so that the team is never without
        return member


def _link(store: MemberStore, identity: ProviderIdentity) -> TeamMember | None:
    """The member with the verified address, if they are not another person at a provider yet."""
    found = store.find(identity.login) if identity.verified else None
    if found is None or found.issuer is not None or found.role is TeamRole.SERVICE or not found.is_active:
        return None
    store.link(found.id, identity.issuer, identity.subject)
    return found


def _create(store: MemberStore, identity: ProviderIdentity, settings: IdentityProviderSettings) -> TeamMember:
    role = role_of_groups(identity.groups, settings.roles, settings.default_role)
    wanted = role or TeamRole.MEMBER
    new = NewMember(identity.login, identity.name, wanted, None, identity.issuer, identity.subject)
    try:
        invited = store.accept_identity(new) if identity.verified else None
        if invited is not None:
            return invited
        if role is not None:
            return store.add(new, TeamRole.OWNER)
    except UsageError as error:
        raise SignInRefused(f"You cannot become a member: {error}") from None
    raise SignInRefused("You are not a member of this team. Ask an owner of the team for an invitation.")
